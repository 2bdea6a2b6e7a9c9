//! Power cuts, in all modes and with settings that weaken durability. Part of the full tier: set `LEASEHOLD_FULL=1`.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::process::ExitCode;

use leasehold_conformance::power::{CUTS, Powered, Report, Trials, cut};
use leasehold_core::{Check, Client, Options, Severity, TokenStrength};
use leasehold_postgres::Postgres as Store;
use leasehold_servers::postgres::Postgres;

const SESSION_MODES: [&str; 2] = ["advisory", "rowlock"];
const REMEMBERED: Report = Report { free: 0, fallen: 0 };
/// A lock of a session mode ends with its connection, whatever was synced.
const FREED: Report = Report { free: CUTS, fallen: 0 };

fn main() -> ExitCode {
    let (usual, lazy, unsynced) =
        (|| start(&[]), || start(&["synchronous_commit=off"]), || start(&["fsync=off"]));
    Trials::new()
        .add("a_power_cut_forgets_no_grant", usual, remembers)
        .add("after_a_power_cut_session_locks_are_free_and_tokens_rise", usual, frees)
        .add("with_synchronous_commit_off_a_power_cut_forgets_no_grant", lazy, remembers)
        .add("with_synchronous_commit_off_tokens_of_session_locks_rise", lazy, frees)
        .add("without_fsync_a_power_cut_forgets_grants_and_tokens_rise", unsynced, forgets)
        .add("without_fsync_tokens_of_session_locks_rise", unsynced, frees)
        .run()
}

struct Site {
    server: Postgres,
    mode: &'static str,
    /// Whether the server syncs nothing. Then this program syncs what was there before a grant, because otherwise the cut
    /// would leave no database.
    is_unsynced: bool,
}

fn start(settings: &[&str]) -> Result<Site, String> {
    let server = Postgres::on_a_power_disk(settings)?;
    Ok(Site { server, mode: "lease", is_unsynced: settings.contains(&"fsync=off") })
}

impl Powered for Site {
    async fn client(&self, options: Options) -> Client {
        let url = format!("{}?mode={}&timeout=30s&connect_timeout=30s", self.server.url(), self.mode);
        let client =
            Client::builder().defaults(options).connect(Store::from_url(&url).unwrap()).await.unwrap();
        if self.is_unsynced {
            self.server.sync();
        }
        client
    }

    fn cut_power(&mut self) {
        self.server.cut_power();
    }
}

/// The strength of tokens, and the names of the checks that warn.
async fn promises(site: &Site) -> (TokenStrength, Vec<String>) {
    let client = site.client(Options::new()).await;
    let warns = |check: &&Check| check.severity == Severity::Warning;
    (
        client.info().tokens,
        client.info().checks.iter().filter(warns).map(|check| check.name.to_string()).collect(),
    )
}

async fn remembers(mut site: Site) {
    assert_eq!(promises(&site).await, (TokenStrength::Durable, vec![]));
    assert_eq!(cut(&mut site).await, REMEMBERED);
}

async fn frees(mut site: Site) {
    for mode in SESSION_MODES {
        site.mode = mode;
        assert_eq!(cut(&mut site).await, FREED, "{mode}");
    }
}

async fn forgets(mut site: Site) {
    assert_eq!(promises(&site).await, (TokenStrength::ClockBound, vec!["fsync".to_owned()]));
    let report = cut(&mut site).await;
    // Otherwise this is no power cut, and the other trials prove nothing.
    assert!(report.free > 0, "no grant was forgotten in {CUTS} cuts");
    assert_eq!(report.fallen, 0, "{report:?}");
}
