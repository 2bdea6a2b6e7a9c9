//! Where numbers come from: they rise through every loss of memory, and are never far ahead of the clock.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::process::Command;
use std::time::Duration;

use leasehold_core::{Client, Options, Severity};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::{Kind, MariaDb};
use leasehold_servers::wait_until;
use tokio::time::timeout;

const MODES: [&str; 3] = ["lease", "advisory", "rowlock"];
/// Ends a hang.
const SOON: Duration = Duration::from_secs(60);
/// How far the source may be ahead of the clock: 60 s, as the README says, and what the test itself draws.
const BOUND: u64 = 61_000_000;

async fn client(server: &MariaDb, mode: &str) -> Client {
    let url = format!("{}?mode={mode}&timeout=30s&connect_timeout=30s", server.url());
    let builder = Client::builder().defaults(Options::new().lease(Duration::from_secs(30)));
    builder.connect(Mysql::from_url(&url).unwrap()).await.unwrap()
}

/// The tokens of a few grants, by a client of its own.
async fn tokens(server: &MariaDb, mode: &str, grants: usize) -> Vec<u64> {
    let client = client(server, mode).await;
    let mut tokens = Vec::new();
    for _ in 0..grants {
        let guard = timeout(SOON, client.mutex("k").acquire()).await.unwrap().unwrap();
        tokens.push(guard.token());
        guard.release().await.unwrap();
    }
    tokens
}

/// Draws more numbers than the server reserves at a time.
fn draw_many(server: &MariaDb) {
    server.sql("USE test; SELECT MAX(NEXT VALUE FOR leasehold_numbers) FROM seq_1_to_1100");
}

fn rises(tokens: &[u64], what: &str) {
    assert!(tokens.is_sorted_by(|a, b| a < b), "{what}: {tokens:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_when_a_backup_is_restored() {
    for mode in MODES {
        let server = MariaDb::start();
        let mut seen = tokens(&server, mode, 2).await;
        let backup = server.directory().join("backup.sql");
        let dump = Command::new("mariadb-dump")
            .args(["--no-defaults", "-h127.0.0.1", "-uroot", &format!("-P{}", server.port())])
            .args(["--add-drop-database", "--databases", "test", "-r"])
            .arg(&backup)
            .status();
        assert!(dump.unwrap().success());
        draw_many(&server);
        seen.extend(tokens(&server, mode, 1).await);
        server.sql(&format!("source {}", backup.display()));
        seen.extend(tokens(&server, mode, 1).await);
        rises(&seen[seen.len() - 2..], mode);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_when_an_asynchronous_replica_takes_over() {
    let log = ["--log-bin=binlog", "--innodb-flush-log-at-trx-commit=2"];
    let primary = MariaDb::with(&[&log[..], &["--server-id=1"]].concat());
    let replica = MariaDb::with(&[&log[..], &["--server-id=2"]].concat());
    replica.sql(&format!(
        "DROP DATABASE test; CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = 'root'; \
         START SLAVE",
        primary.port()
    ));
    for mode in MODES {
        let mut seen = tokens(&primary, mode, 2).await;
        let (logged, position) = {
            let status = primary.sql("SHOW MASTER STATUS");
            let mut columns = status.split('\t').map(str::to_owned);
            (columns.next().unwrap(), columns.next().unwrap())
        };
        assert_ne!(replica.sql(&format!("SELECT MASTER_POS_WAIT('{logged}', {position}, 30)")), "-1");
        let warned =
            client(&primary, mode).await.info().checks.iter().any(|check| {
                check.name == "rpl_semi_sync_master_enabled" && check.severity == Severity::Warning
            });
        assert!(warned, "{mode}: nothing is said about the replica");
        // The replica lags from here on.
        replica.sql("STOP SLAVE");
        draw_many(&primary);
        seen.extend(tokens(&primary, mode, 1).await);
        seen.extend(tokens(&replica, mode, 1).await);
        rises(&seen[seen.len() - 2..], mode);
        replica.sql("START SLAVE");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_tables_start_above_those_that_were_dropped() {
    let numbers = match Kind::tested() {
        Kind::MariaDb => "SEQUENCE",
        Kind::MySql => "TABLE",
    };
    let server = MariaDb::start();
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.extend(tokens(&server, "lease", 2).await);
        server.sql(&format!(
            "USE test; DROP VIEW leasehold_locks; DROP {numbers} leasehold_numbers;
             DROP TABLE leasehold_keys, leasehold_claims, leasehold_refusals, leasehold_rows, leasehold_store",
        ));
    }
    rises(&seen, "tables made again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_quick_connections_move_the_source_no_further_ahead() {
    let server = MariaDb::start();
    let now = || -> u64 {
        server.sql("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").parse().unwrap()
    };
    let mut seen = Vec::new();
    for n in 0..1000 {
        let mode = MODES[n % 3];
        if n % 50 == 0 {
            seen.extend(tokens(&server, mode, 1).await);
        } else {
            drop(client(&server, mode).await);
        }
    }
    seen.extend(tokens(&server, "lease", 1).await);
    rises(&seen, "connections");
    let last = seen.last().copied().unwrap();
    assert!(last <= now() + BOUND, "{} µs ahead of the clock", last - now());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_move_the_source_no_further_ahead() {
    let mut server = MariaDb::start();
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.extend(tokens(&server, "lease", 1).await);
        server.restart();
    }
    rises(&seen, "restarts");
    let now: u64 =
        server.sql("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").parse().unwrap();
    assert!(seen[4] <= now + BOUND, "{} µs ahead of the clock", seen[4].saturating_sub(now));
    wait_until("all connections are closed", SOON, || server.connections().is_empty());
}
