//! Power cuts, with and without a binary log. Part of the full tier: set `LEASEHOLD_FULL=1`.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::process::ExitCode;

use leasehold_conformance::power::{CUTS, Powered, Report, Trials, cut};
use leasehold_core::{Client, Options, TokenStrength};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;

const SESSION_MODES: [&str; 2] = ["advisory", "rowlock"];

fn main() -> ExitCode {
    let synced = || start(&["--log-bin=binlog", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"]);
    let cached = || start(&["--log-bin=binlog", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=1"]);
    let without = || start(&["--skip-log-bin", "--innodb-flush-log-at-trx-commit=1"]);
    Trials::new()
        .add("without_a_binary_log_a_power_cut_forgets_no_grant", without, remembers)
        .add("with_a_synced_binary_log_a_power_cut_forgets_no_grant", synced, remembers)
        .add("with_an_unsynced_binary_log_a_power_cut_forgets_grants_and_tokens_rise", cached, forgets)
        .run()
}

struct Site {
    server: MariaDb,
    mode: &'static str,
}

fn start(settings: &[&str]) -> Result<Site, String> {
    Ok(Site { server: MariaDb::on_a_power_disk(settings)?, mode: "lease" })
}

impl Powered for Site {
    async fn client(&self, options: Options) -> Client {
        let url = format!("{}?mode={}&timeout=30s&connect_timeout=30s", self.server.url(), self.mode);
        Client::builder().defaults(options).connect(Mysql::from_url(&url).unwrap()).await.unwrap()
    }

    fn cut_power(&mut self) {
        self.server.cut_power();
    }
}

async fn remembers(mut site: Site) {
    assert_eq!(site.client(Options::new()).await.info().tokens, TokenStrength::Durable);
    assert_eq!(cut(&mut site).await, Report { free: 0, fallen: 0 });
    session_locks_are_free_and_tokens_rise(site).await;
}

async fn forgets(mut site: Site) {
    let client = site.client(Options::new()).await;
    assert_eq!(client.info().tokens, TokenStrength::ClockBound);
    assert!(client.info().checks.iter().any(|check| check.to_string().contains("power cut")));
    let report = cut(&mut site).await;
    // Otherwise this is no power cut, and the other trials prove nothing.
    assert!(report.free > 0, "no grant was forgotten in {CUTS} cuts");
    assert_eq!(report.fallen, 0, "{report:?}");
    session_locks_are_free_and_tokens_rise(site).await;
}

async fn session_locks_are_free_and_tokens_rise(mut site: Site) {
    for mode in SESSION_MODES {
        site.mode = mode;
        assert_eq!(cut(&mut site).await, Report { free: CUTS, fallen: 0 }, "{mode}");
    }
}
