//! Law 13: the settings that promises rest on, one test for each.

use leasehold_core::{Check, ErrorKind, Severity, TokenStrength};
use leasehold_servers::postgres::Bouncer;
use leasehold_servers::{Proxy, wait_until};
use tokio::time::sleep;

use super::*;

/// What a client of this server says about a setting, and about its tokens.
async fn check(url: &str, name: &str) -> (Check, TokenStrength) {
    let client = client(url, LONG).await;
    let found = client.info().checks.iter().find(|check| check.name == name);
    (found.unwrap_or_else(|| panic!("{name} is not checked")).clone(), client.info().tokens)
}

fn set(server: &Server, setting: &str) {
    // The database may be read-only already.
    server.sql(&format!("SET transaction_read_only = off; ALTER DATABASE postgres SET {setting}"));
}

/// A server that is set up well.
fn safe() -> Server {
    Server::with(&["fsync=on"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_its_defaults_passes_every_check() {
    let server = safe();
    for mode in ["lease", "advisory", "rowlock"] {
        let client = client(&in_mode(&server, mode), LONG).await;
        let checks = &client.info().checks;
        assert!(checks.len() > 8, "{checks:?}");
        assert!(checks.iter().all(|check| check.severity == Severity::Ok), "{mode}: {checks:?}");
        assert_eq!(client.info().tokens, TokenStrength::Durable, "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_fsync_the_tokens_rest_on_the_clock() {
    let server = Server::with(&["fsync=off"]);
    let (check, tokens) = check(&server.url(), "fsync").await;
    assert_eq!((check.severity, tokens), (Severity::Warning, TokenStrength::ClockBound), "{check}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_full_page_writes_the_tokens_rest_on_the_clock() {
    let server = Server::with(&["full_page_writes=off"]);
    let (check, tokens) = check(&server.url(), "full_page_writes").await;
    assert_eq!((check.severity, tokens), (Severity::Warning, TokenStrength::ClockBound), "{check}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synchronous_commit_is_turned_on_where_it_is_off_or_local() {
    let server = safe();
    for level in ["off", "local"] {
        set(&server, &format!("synchronous_commit = '{level}'"));
        let (check, tokens) = check(&server.url(), "synchronous_commit").await;
        assert_eq!((check.severity, tokens), (Severity::Ok, TokenStrength::Durable), "{check}");
        let said = server.sql("BEGIN; SELECT leasehold.begin_1(); SHOW synchronous_commit; ROLLBACK");
        assert!(said.lines().any(|line| line == "on"), "{level}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_isolation_is_overridden_and_refused_where_it_cannot_be() {
    let server = safe();
    let bouncer = Bouncer::to(&server, &[]);
    client(&bouncer.url(), LONG).await;
    set(&server, "default_transaction_isolation = 'repeatable read'");
    assert_eq!(check(&server.url(), "default_transaction_isolation").await.0.severity, Severity::Ok);
    let error = Client::new(store(&Bouncer::to(&server, &[]).url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("default_transaction_isolation"), "{error}");
}

/// A hold in this mode outlives a timeout of the server's that is much shorter.
async fn survives(server: &Server, mode: &str, setting: &str) {
    set(server, setting);
    let client = client(&in_mode(server, mode), LONG).await;
    let guard = client.mutex("k").acquire().await.unwrap();
    sleep(Duration::from_millis(1500)).await;
    let other = Client::new(store(&in_mode(server, mode))).await.unwrap();
    assert!(other.mutex("k").try_acquire().await.unwrap().is_none(), "{mode}, {setting}: two hold");
    assert!(guard.is_valid(), "{mode}, {setting}: lost");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_in_transaction_session_timeout_is_ours() {
    let server = safe();
    for mode in ["lease", "advisory", "rowlock"] {
        survives(&server, mode, "idle_in_transaction_session_timeout = '300ms'").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_session_timeout_is_ours() {
    let server = safe();
    for mode in ["lease", "advisory", "rowlock"] {
        survives(&server, mode, "idle_session_timeout = '300ms'").await;
    }
    // The listener has not been ended and made again either: waiters would miss what is said in between.
    let lease = client(&server.url(), LONG).await;
    lease.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let ours = "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    let before = server.sql(ours);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.sql(ours), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statement_timeout_is_ours() {
    let server = safe();
    for mode in ["lease", "advisory", "rowlock"] {
        survives(&server, mode, "statement_timeout = '1ms'").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL 17, which the full tier has: `cargo xtask test --full postgres`"]
async fn transaction_timeout_is_ours() {
    let server = safe();
    for mode in ["lease", "advisory", "rowlock"] {
        survives(&server, mode, "transaction_timeout = '300ms'").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_default_is_overridden_and_refused_where_it_cannot_be() {
    let server = safe();
    client(&server.url(), LONG).await;
    for mode in ["lease", "advisory", "rowlock"] {
        survives(&server, mode, "default_transaction_read_only = on").await;
    }
    let error = Client::new(store(&Bouncer::to(&server, &[]).url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("default_transaction_read_only"), "{error}");
}

/// After a failover the same client may find other settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_is_refused_where_its_settings_must_be() {
    let server = safe();
    let bouncer = Bouncer::to(&server, &[]);
    let port = bouncer.url().rsplit(':').next().unwrap().strip_suffix("/postgres").unwrap().parse().unwrap();
    let proxy = Proxy::to(port);
    let client = client(&format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port()), LONG).await;
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    set(&server, "default_transaction_read_only = on");
    // The pooler has no session with the old setting left, and the client connects anew.
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'
                AND pid <> pg_backend_pid()",
    );
    proxy.cut();
    let end = Instant::now() + SOON;
    let error = loop {
        let error = client.mutex("k").try_acquire().await.map(drop).expect_err("nothing can be written");
        if !error.is_retryable() {
            break error;
        }
        assert!(Instant::now() < end, "{error}");
    };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("default_transaction_read_only is on"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_search_path_is_ours() {
    let server = safe();
    set(&server, "search_path = 'public'");
    let (check, _) = check(&server.url(), "search_path").await;
    assert_eq!((check.severity, check.found.as_str()), (Severity::Ok, "pg_catalog,pg_temp"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_nothing_is_pushed_and_info_says_so() {
    let server = safe();
    for settings in [&[][..], &["ignore_startup_parameters = options"]] {
        let client = client(&Bouncer::to(&server, settings).url(), LONG).await;
        assert!(!client.info().pushes);
        let pooler = client.info().checks.iter().find(|check| check.name == "pooler").unwrap();
        assert_eq!(pooler.severity, Severity::Warning, "{pooler}");
        assert_eq!(client.info().tokens, TokenStrength::Durable);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_refused_and_the_error_names_it() {
    let server = safe();
    client(&server.url(), LONG).await;
    let standby = Server::standby_of(&server);
    for mode in ["lease", "advisory", "rowlock"] {
        let error = Client::new(store(&in_mode(&standby, mode))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("standby"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_an_asynchronous_standby_the_tokens_rest_on_the_clock() {
    let server = safe();
    client(&server.url(), LONG).await;
    let _standby = Server::standby_of(&server);
    let senders = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    wait_until("the standby follows", SOON, || server.sql(senders) == "1");
    // The lock client need not be a superuser to see it.
    server.sql("CREATE ROLE app LOGIN; GRANT postgres TO app");
    let app = server.url().replace("postgres@", "app@");
    let (found, tokens) = check(&app, "synchronous_standby_names").await;
    assert_eq!((found.severity, tokens), (Severity::Warning, TokenStrength::ClockBound), "{found}");
    server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    server.sql("SELECT pg_reload_conf()");
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    wait_until("the standby is waited for", SOON, || server.sql(synchronous) == "1");
    let (found, tokens) = check(&server.url(), "synchronous_standby_names").await;
    assert_eq!((found.severity, tokens), (Severity::Ok, TokenStrength::Durable), "{found}");
}
