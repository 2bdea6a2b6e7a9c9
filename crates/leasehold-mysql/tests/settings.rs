//! Settings of the server that promises rest on: each is set, refused, or reported with the weaker promise.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Check, Client, Error, ErrorKind, Info, Options, Severity, TokenStrength};
use leasehold_mysql::Mysql;
use leasehold_servers::free_port;
use leasehold_servers::mariadb::MariaDb;
use tokio::time::timeout;

const MODES: [&str; 3] = ["lease", "advisory", "rowlock"];
/// Ends a hang.
const SOON: Duration = Duration::from_secs(60);
/// Every commit is on the disk before it is answered.
const DURABLE: [&str; 3] = ["--log-bin=binlog", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"];

async fn connect(server: &MariaDb, mode: &str) -> Result<Client, Error> {
    let builder = Client::builder().defaults(Options::new().lease(Duration::from_secs(30)));
    // No call of it is about time.
    let url = format!("{}?mode={mode}&timeout=30s&connect_timeout=30s", server.url());
    builder.connect(Mysql::from_url(&url).unwrap()).await
}

fn check<'a>(info: &'a Info, name: &str) -> &'a Check {
    let found = info.checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("{name} was not looked at: {:?}", info.checks))
}

/// What every mode promises on a server with these settings.
async fn promises(settings: &[&str]) -> Vec<Info> {
    let server = MariaDb::with(settings);
    let mut all = Vec::new();
    for mode in MODES {
        all.push(connect(&server, mode).await.unwrap().info().clone());
    }
    all
}

/// A setting that lets a power cut forget the last commits.
async fn weakens(name: &str, value: &str) {
    let setting = format!("--{}={value}", name.replace('_', "-"));
    for info in promises(&[&DURABLE[..], &[&setting]].concat()).await {
        let check = check(&info, name);
        assert_eq!((check.severity, info.tokens), (Severity::Warning, TokenStrength::ClockBound), "{check}");
        assert!(check.effect.contains("power cut") && check.remedy.contains(name), "{check}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_commits_are_durable_tokens() {
    for info in promises(&DURABLE).await {
        assert_eq!(info.tokens, TokenStrength::Durable);
        let worst = info.checks.iter().max_by_key(|check| check.severity).unwrap();
        assert_eq!(worst.severity, Severity::Ok, "{worst}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_log_that_is_not_synced_weakens_tokens() {
    weakens("sync_binlog", "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_log_that_is_synced_now_and_then_weakens_tokens() {
    weakens("sync_binlog", "100").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redo_log_that_is_not_synced_weakens_tokens() {
    weakens("innodb_flush_log_at_trx_commit", "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_never_synced_weaken_tokens() {
    weakens("innodb_flush_method", "nosync").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_binary_log_its_settings_do_not_matter() {
    for info in promises(&["--skip-log-bin", "--sync-binlog=0", "--binlog-format=STATEMENT"]).await {
        assert_eq!(info.tokens, TokenStrength::Durable);
        assert_eq!(check(&info, "sync_binlog").severity, Severity::Ok);
        assert_eq!(check(&info, "binlog_format").severity, Severity::Ok);
    }
}

/// Every mode refuses a server with these settings, and says why.
async fn refuses(server: &MariaDb, name: &str) {
    refuses_as(ErrorKind::Invalid, server, name).await;
}

async fn refuses_as(kind: ErrorKind, server: &MariaDb, name: &str) {
    for mode in MODES {
        let error = connect(server, mode).await.err().unwrap_or_else(|| panic!("{mode} accepts {name}"));
        assert_eq!(error.kind(), kind, "{mode}: {error}");
        assert!(error.to_string().contains(&format!("{name} is ")), "{mode}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_log_of_statements_is_refused() {
    refuses(&MariaDb::with(&["--log-bin=binlog", "--binlog-format=STATEMENT"]), "binlog_format").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_server_is_unavailable_until_it_takes_writes() {
    let server = MariaDb::start();
    connect(&server, "lease").await.unwrap();
    // This user may write nevertheless.
    server.sql("SET GLOBAL read_only = ON");
    refuses_as(ErrorKind::Unavailable, &server, "read_only").await;
    for mode in MODES {
        let store = Mysql::from_url(&format!("{}?mode={mode}&timeout=30s", server.url())).unwrap();
        // A moment early during a switchover.
        assert!(Client::new(store.clone()).await.unwrap_err().is_retryable());
        server.sql("SET GLOBAL read_only = OFF");
        let client = Client::new(store).await.unwrap();
        client.mutex("k").acquire().await.unwrap().release().await.unwrap();
        server.sql("SET GLOBAL read_only = ON");
    }
}

/// After a failover the same client may find another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_is_refused_where_its_settings_must_be() {
    let server = MariaDb::start();
    for mode in MODES {
        let client = connect(&server, mode).await.unwrap();
        client.mutex("k").acquire().await.unwrap().release().await.unwrap();
        server.sql("SET GLOBAL read_only = ON");
        server.connections().into_iter().for_each(|connection| server.end_connection(connection));
        let error = error_about(&client, mode, "read_only is ON").await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode}: {error}");
        server.sql("SET GLOBAL read_only = OFF");
        client.mutex("k").acquire().await.unwrap().release().await.unwrap();
        client.close().await.unwrap();
    }
}

/// The first error of a client that names this. Before that it hears of its broken connections.
async fn error_about(client: &Client, mode: &str, what: &str) -> Error {
    let error = timeout(SOON, async {
        loop {
            let asked = client.mutex("k").try_acquire().await;
            let error = asked.map(drop).expect_err("nothing may be written");
            if error.to_string().contains(what) {
                return error;
            }
            assert!(error.is_retryable(), "{mode}: {error}");
        }
    });
    error.await.unwrap_or_else(|_| panic!("{mode}: no error says {what}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_another_engine_are_refused() {
    let server = MariaDb::start();
    connect(&server, "lease").await.unwrap();
    server.sql("ALTER TABLE test.leasehold_claims ENGINE = Aria");
    refuses(&server, "ENGINE of leasehold_claims").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_enforces_another_engine_gets_no_tables_without_transactions() {
    let server = MariaDb::with(&["--enforce-storage-engine=Aria"]);
    for mode in MODES {
        connect(&server, mode).await.map(drop).expect_err("no transactions, no locks");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_galera_cluster_is_refused() {
    let [own, group] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let server = MariaDb::with(&[
        "--log-bin=binlog",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
        "--wsrep-cluster-address=gcomm://",
        &format!("--wsrep-node-address={own}"),
        &format!("--wsrep-provider-options=gmcast.listen_addr=tcp://{group};ist.recv_bind={own}"),
    ]);
    assert_eq!(
        server.sql(
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_ready'"
        ),
        "ON"
    );
    refuses(&server, "wsrep_on").await;
}

/// Two clients go through the life of a lock.
async fn works(server: &MariaDb, mode: &str) -> Info {
    let mut seen = None;
    for _ in 0..2 {
        let (one, two) = (connect(server, mode).await.unwrap(), connect(server, mode).await.unwrap());
        let guard = one.mutex("k").acquire().await.unwrap();
        assert!(two.mutex("k").try_acquire().await.unwrap().is_none(), "{mode}: two holders");
        guard.renew(Duration::from_secs(30)).await.unwrap();
        guard.release().await.unwrap();
        // As if the runner was killed after its release was answered.
        server.connections().into_iter().for_each(|connection| server.end_connection(connection));
        let next = timeout(SOON, async {
            loop {
                match two.mutex("k").try_acquire().await {
                    Ok(Some(next)) => return next,
                    Ok(None) => panic!("{mode}: a release that was answered is undone"),
                    Err(error) => assert!(error.is_retryable(), "{mode}: {error}"),
                }
            }
        });
        next.await.unwrap().release().await.unwrap();
        seen = Some(two.info().clone());
    }
    seen.unwrap()
}

/// A setting of the server that our sessions do not have.
async fn overridden(name: &str, value: &str) {
    let server = MariaDb::start();
    server.sql(&format!("SET GLOBAL {name} = {value}"));
    for mode in MODES {
        let info = works(&server, mode).await;
        assert_eq!(check(&info, name).severity, Severity::Ok, "{mode}");
        assert_ne!(check(&info, name).found, value.trim_matches('\''), "{mode}");
    }
}

macro_rules! overridden {
    ($($test:ident: $name:literal = $value:literal,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            overridden($name, $value).await;
        }
    )*};
}

overridden! {
    chained_transactions_are_switched_off: "completion_type" = "'CHAIN'",
    disconnecting_after_a_commit_is_switched_off: "completion_type" = "'RELEASE'",
    isolation_is_our_own: "tx_isolation" = "'SERIALIZABLE'",
    transactions_write: "tx_read_only" = "1",
    autocommit_is_our_own: "autocommit" = "0",
    quotes_are_ours: "sql_mode" = "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,ORACLE'",
    reads_are_not_cut_short: "sql_select_limit" = "1",
    statements_may_take_their_time: "max_statement_time" = "0.01",
    silence_is_ours: "wait_timeout" = "1",
    transactions_half_way_are_ours: "idle_transaction_timeout" = "1",
    the_wait_for_rows_is_ours: "innodb_lock_wait_timeout" = "0",
}

/// Settings that change nothing for us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_settings_do_not_matter() {
    let server = MariaDb::with(&[
        "--innodb-rollback-on-timeout=ON",
        "--interactive-timeout=1",
        "--default-time-zone=+09:00",
    ]);
    for mode in MODES {
        let info = works(&server, mode).await;
        for name in ["innodb_rollback_on_timeout", "interactive_timeout", "time_zone"] {
            assert_eq!(check(&info, name).severity, Severity::Ok, "{mode}: {name}");
        }
    }
}

/// A server that is changed while clients are connected is refused by their next connections, and the error names the setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_log_of_statements_that_comes_later_is_named_and_nothing_happened() {
    let server = MariaDb::with(&["--log-bin=binlog", "--binlog-format=ROW"]);
    for mode in MODES {
        let client = connect(&server, mode).await.unwrap();
        client.mutex("k").acquire().await.unwrap().release().await.unwrap();
        server.sql("SET GLOBAL binlog_format = STATEMENT");
        server.connections().into_iter().for_each(|connection| server.end_connection(connection));
        let error = error_about(&client, mode, "binlog_format").await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{mode}: {error}");
        server.sql("SET GLOBAL binlog_format = ROW");
        client.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MySQL, which the full tier has: `cargo xtask test --full mysql`"]
async fn a_super_read_only_server_of_mysql_is_refused() {
    let server = MariaDb::start();
    connect(&server, "lease").await.unwrap();
    server.sql("SET GLOBAL super_read_only = ON");
    refuses_as(ErrorKind::Unavailable, &server, "read_only").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MySQL, which the full tier has: `cargo xtask test --full mysql`"]
async fn the_settings_of_mysqls_own_are_our_own() {
    for (name, value) in [
        ("max_execution_time", "1"),
        ("transaction_isolation", "'SERIALIZABLE'"),
        ("transaction_read_only", "1"),
    ] {
        overridden(name, value).await;
    }
}
