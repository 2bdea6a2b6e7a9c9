//! What is particular to PostgreSQL: isolation, rights, poolers, TLS, and what is left when somebody drops the tables.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod recipes;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Answer, Change, Claim, Client, ErrorKind, Key, Loss, Options, Released, Store, Units};
use leasehold_postgres::{Postgres, init_sql};
use leasehold_servers::postgres::{Bouncer, Postgres as Server};
use leasehold_servers::redis::Certificates;
use tokio::task::JoinSet;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);

fn store(url: &str) -> Postgres {
    Postgres::from_url(url).unwrap()
}

fn claim(name: &str) -> Claim {
    Claim::new(Key::new(name).unwrap(), 1, Units::Exactly(1)).unwrap()
}

async fn token(store: &Postgres, claim: &Claim) -> u64 {
    match store.claim(claim).await.unwrap() {
        Answer::Granted(grant) => grant.token,
        other => panic!("not granted: {other:?}"),
    }
}

/// Many at once claim one lock after the other: of each, one holds.
async fn race(store: &Arc<Postgres>, prefix: &str) {
    for round in 0..20 {
        let name = format!("{prefix} {round}");
        let mut all = JoinSet::new();
        for _ in 0..16 {
            let (store, claim) = (store.clone(), claim(&name));
            all.spawn(async move { store.claim(&claim).await });
        }
        let said = timeout(SOON, all.join_all()).await.unwrap();
        let granted = said.iter().filter(|said| matches!(said, Ok(Answer::Granted(_)))).count();
        assert_eq!(granted, 1, "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holds_whatever_the_database_s_default_isolation() {
    let server = Server::start();
    for level in ["repeatable read", "serializable"] {
        server.sql(&format!("ALTER DATABASE postgres SET default_transaction_isolation = '{level}'"));
        race(&Arc::new(store(&server.url())), level).await;
    }
}

#[tokio::test]
async fn where_a_pooler_hides_our_isolation_nothing_is_granted_and_the_error_says_what_to_do() {
    let server = Server::start();
    let client = store(&server.url());
    token(&client, &claim("first")).await;
    server.sql("ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'");
    let bouncer = Bouncer::to(&server, &[]);
    let error = store(&bouncer.url()).claim(&claim("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("default_transaction_isolation"), "{error}");
    assert!(client.inspect(&Key::new("k").unwrap()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_one_holds_and_who_waits_is_served() {
    let server = Server::start();
    // One that refuses our settings, and one that swallows them.
    for settings in [&[][..], &["ignore_startup_parameters = options"]] {
        let bouncer = Bouncer::to(&server, settings);
        race(&Arc::new(store(&bouncer.url())), &bouncer.url()).await;
        let one = Client::new(store(&bouncer.url())).await.unwrap();
        let two = Client::new(store(&bouncer.url())).await.unwrap();
        let guard = one.mutex("k").acquire().await.unwrap();
        let waits = tokio::spawn(async move { two.mutex("k").acquire().await.unwrap().token() });
        while one.inspect("k").await.unwrap().unwrap().waiters.is_empty() {}
        let before = guard.token();
        guard.release().await.unwrap();
        assert!(timeout(SOON, waits).await.unwrap().unwrap() > before);
    }
}

#[tokio::test]
async fn the_rights_that_the_documentation_lists_are_enough() {
    let server = Server::start();
    server.sql(&init_sql("leasehold").unwrap());
    // Those who run migrations may run them again.
    server.sql(&init_sql("leasehold").unwrap());
    server.sql(&recipes::rights("app"));
    let store = store(&server.url().replace("postgres@", "app@"));
    let (first, second) = (claim("k"), claim("k"));
    let held = token(&store, &first).await;
    assert!(matches!(store.claim(&second).await.unwrap(), Answer::Waiting(_)));
    assert!(matches!(store.renew(std::slice::from_ref(&first)).await.unwrap()[..], [Answer::Granted(_)]));
    assert_eq!(store.amend(&first, &Change::Ask(held)).await.unwrap(), Answer::Done);
    assert_eq!(store.list("", None).await.unwrap().resources.len(), 1);
    assert!(store.evict(&first.key, held).await.unwrap());
    assert_eq!(store.release(&second, Some(SOON)).await.unwrap(), Released::Held);
    let above = Claim { token_above: held + 500, ..claim("high") };
    assert!(token(&store, &above).await > held + 500);
    store.vacuum().await.unwrap();
}

#[tokio::test]
async fn who_may_not_make_the_tables_is_told_what_to_run() {
    let server = Server::start();
    server.sql("CREATE ROLE app LOGIN");
    let error = Client::new(store(&server.url().replace("postgres@", "app@"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("init --print-sql"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_database_are_told_apart() {
    let server = Server::start();
    server.sql("CREATE ROLE app LOGIN PASSWORD 'right'");
    std::fs::write(
        server.directory().join("data/pg_hba.conf"),
        "host all app all scram-sha-256\nhost all all all trust\n",
    )
    .unwrap();
    server.sql("SELECT pg_reload_conf()");
    let at =
        |login: &str, database: &str| format!("postgres://{login}@127.0.0.1:{}/{database}", server.port());
    let kind = async |url: String| Client::new(store(&url)).await.unwrap_err();
    // The server hears of the new file in its own time.
    let end = tokio::time::Instant::now() + SOON;
    let error = loop {
        match Client::new(store(&at("app:hunter2", "postgres"))).await {
            Err(error) if error.to_string().contains("password") => break error,
            other => assert!(tokio::time::Instant::now() < end, "{other:?}"),
        }
    };
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!error.to_string().contains("hunter2"));
    assert_eq!(kind(at("postgres", "nosuch")).await.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn tables_that_somebody_drops_are_made_again_and_tokens_go_on_rising() {
    let server = Server::start();
    let client = Client::builder().defaults(Options::new().lease(Duration::from_secs(3)));
    let client = client.connect(store(&server.url())).await.unwrap();
    let guard = client.mutex("k").acquire().await.unwrap();
    server.sql("DROP SCHEMA leasehold CASCADE");
    assert_eq!(timeout(SOON, guard.lost()).await.unwrap(), Loss::Gone);
    assert!(client.mutex("k").acquire().await.unwrap().token() > guard.token());
}

#[tokio::test]
async fn a_store_on_another_timeline_is_young() {
    let server = Server::start();
    let before = token(&store(&server.url()), &claim("k")).await;
    // As a standby finds it that took over.
    server.sql("UPDATE leasehold.store SET lineage = 'another', born = 0; DELETE FROM leasehold.awake");
    let after = token(&store(&server.url()), &claim("other")).await;
    assert!(after > before + 900_000, "{after} after {before}");
    assert_eq!(server.sql("SELECT born > 0 FROM leasehold.store"), "t");
    let next = token(&store(&server.url()), &claim("third")).await;
    assert!(next < after + 1_000, "it leaps once: {next} after {after}");
}

#[tokio::test]
async fn tables_of_another_format_are_refused_and_stay() {
    let server = Server::start();
    token(&store(&server.url()), &claim("k")).await;
    server.sql("UPDATE leasehold.store SET format = 1");
    let error = Client::new(store(&server.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    server.sql("DROP FUNCTION leasehold.greet_1()");
    let error = Client::new(store(&server.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(server.sql("SELECT count(*) FROM leasehold.claims"), "1");
}

#[tokio::test]
async fn a_commit_is_durable_where_the_database_s_default_is_not() {
    let server = Server::start();
    token(&store(&server.url()), &claim("first")).await;
    let said = server.sql(
        "SET synchronous_commit = off; BEGIN; SELECT leasehold.begin_1(); SHOW synchronous_commit; ROLLBACK",
    );
    assert!(said.lines().any(|line| line == "on"), "{said}");
}

#[tokio::test]
async fn schemas_are_stores_of_their_own() {
    let server = Server::start();
    let (one, two) = (store(&server.url()), store(&format!("{}?schema=billing", server.url())));
    let first = token(&one, &claim("k")).await;
    assert!(token(&two, &claim("k")).await > first);
    assert_eq!(server.sql("SELECT name, units, label FROM billing.locks"), format!("k|{}|", 1));
}

#[tokio::test]
async fn names_and_labels_are_readable_in_the_table() {
    let server = Server::start();
    let labelled = Claim { label: "host 7, cron".into(), ..claim("größe/42") };
    token(&store(&server.url()), &labelled).await;
    assert_eq!(
        server.sql("SELECT name, state, units, of, label FROM leasehold.locks"),
        "größe/42|holds|1|1|host 7, cron"
    );
}

#[tokio::test]
async fn what_is_over_goes_with_the_traffic_on_other_locks() {
    let server = Server::start();
    let store = store(&server.url());
    for n in 0..200 {
        let short = Claim { lease: Some(Duration::from_millis(1)), ..claim(&format!("dead {n}")) };
        token(&store, &short).await;
    }
    let end = tokio::time::Instant::now() + SOON;
    while server.sql("SELECT count(*) FROM leasehold.keys") != "0" {
        assert!(tokio::time::Instant::now() < end, "something is left");
        for _ in 0..40 {
            let used = claim("in use");
            token(&store, &used).await;
            store.release(&used, None).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_vacuum_removes_what_is_over_and_nothing_else() {
    let server = Server::start();
    let store = store(&server.url());
    token(&store, &claim("held")).await;
    store.release(&claim("given up"), Some(Duration::from_millis(1))).await.unwrap();
    for n in 0..25 {
        let short = Claim { lease: Some(Duration::from_millis(1)), ..claim(&format!("dead {n}")) };
        token(&store, &short).await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    store.vacuum().await.unwrap();
    let left =
        "SELECT (SELECT string_agg(name, ',') FROM leasehold.keys), (SELECT count(*) FROM leasehold.claims),
        (SELECT count(*) FROM leasehold.refusals)";
    assert_eq!(server.sql(left), "held|1|0");
}

#[tokio::test]
async fn certificates_are_checked() {
    let files = Certificates::make();
    let directory = tempfile::tempdir().unwrap();
    for (name, from) in [("server.pem", files.certificate("server")), ("server.key", files.key("server"))] {
        let to = directory.path().join(name);
        std::fs::copy(from, &to).unwrap();
        leasehold_servers::postgres::keep_private(&to);
    }
    let path = |name: &str| directory.path().join(name).display().to_string();
    let server = Server::with(&[
        "fsync=off",
        "ssl=on",
        &format!("ssl_cert_file={}", path("server.pem")),
        &format!("ssl_key_file={}", path("server.key")),
    ]);
    let url = |ca: &str| {
        format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), files.certificate(ca).display())
    };
    let trusting = store(&url("ca"));
    token(&trusting, &claim("k")).await;
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'leasehold'";
    assert_eq!(server.sql(encrypted), "t");
    let error = Client::new(store(&url("client"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_socket_is_a_way_too() {
    let server = Server::start();
    let url =
        format!("postgres://postgres@/postgres?host={}&port={}", server.directory().display(), server.port());
    token(&store(&url), &claim("k")).await;
}
