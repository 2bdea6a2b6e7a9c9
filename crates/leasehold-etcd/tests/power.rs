//! Power cuts, with and without fsync. Part of the full tier: set `LEASEHOLD_FULL=1`.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::process::ExitCode;
use std::time::Duration;

use leasehold_conformance::power::{CUTS, Powered, Report, Trials, cut};
use leasehold_core::{Client, Options, TokenStrength};
use leasehold_etcd::Etcd;
use leasehold_servers::etcd::Etcd as Server;

/// Longer than etcd waits before it writes what it has collected to its database: 100 ms.
const WRITTEN: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    Trials::new()
        .add("a_power_cut_forgets_no_grant_and_tokens_rise", || start("--unsafe-no-fsync=false"), remembers)
        .add("without_fsync_a_power_cut_forgets_grants", || start("--unsafe-no-fsync"), forgets)
        .run()
}

struct Site {
    server: Server,
    /// Whether the server syncs nothing. Then this program syncs what was there before a grant, because otherwise the server
    /// could not start again.
    is_unsynced: bool,
}

fn start(setting: &str) -> Result<Site, String> {
    Ok(Site { server: Server::on_a_power_disk(&[setting])?, is_unsynced: setting == "--unsafe-no-fsync" })
}

impl Powered for Site {
    async fn client(&self, options: Options) -> Client {
        let url = format!("{}?timeout=30s&connect_timeout=30s", self.server.url());
        let client =
            Client::builder().defaults(options).connect(Etcd::from_url(&url).unwrap()).await.unwrap();
        if self.is_unsynced {
            tokio::time::sleep(WRITTEN).await;
            self.server.sync();
        }
        client
    }

    fn cut_power(&mut self) {
        self.server.cut_power();
    }
}

async fn remembers(mut site: Site) {
    assert_eq!(site.client(Options::new()).await.info().tokens, TokenStrength::Durable);
    assert_eq!(cut(&mut site).await, Report { free: 0, fallen: 0 });
}

async fn forgets(mut site: Site) {
    // A member does not tell this setting, so `Info` can only name it.
    let client = site.client(Options::new()).await;
    let check = client.info().checks.iter().find(|check| check.name == "unsafe-no-fsync").unwrap();
    assert!(check.effect.contains("a power cut can forget the last grants and tokens"), "{check:?}");
    // Otherwise this is no power cut, and the other trial proves nothing.
    assert!(cut(&mut site).await.free > 0, "no grant was forgotten in {CUTS} cuts");
}
