//! What things cost, counted by the server itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Answer, Claim, Key, Store, Units};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;

/// How many statements that write rows ran since the server started.
fn writes(server: &MariaDb) -> u64 {
    let counted = "SELECT sum(variable_value) FROM information_schema.global_status WHERE variable_name IN
        ('COM_UPDATE', 'COM_UPDATE_MULTI', 'COM_INSERT', 'COM_REPLACE', 'COM_DELETE')";
    server.sql(counted).parse().unwrap()
}

fn claim(n: usize) -> Claim {
    let key = Key::new(format!("lock {n}")).unwrap();
    Claim { lease: Some(Duration::from_secs(600)), ..Claim::new(key, 1, Units::Exactly(1)).unwrap() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_renewed_with_forty_writes() {
    const LOCKS: usize = 10_000;
    // What is measured is the count: nothing is written to the disk.
    let server = MariaDb::with(&["--innodb-flush-log-at-trx-commit=0"]);
    let store = Mysql::from_url(&format!("{}?timeout=20s", server.url())).unwrap();
    let claims: Vec<Claim> = (0..LOCKS).map(claim).collect();
    let mut all = tokio::task::JoinSet::new();
    for part in claims.chunks(LOCKS / 8).map(<[Claim]>::to_vec) {
        let store = store.clone();
        all.spawn(async move {
            for claim in part {
                assert!(matches!(store.claim(&claim).await.unwrap(), Answer::Granted(_)));
            }
        });
    }
    all.join_all().await;
    let before = writes(&server);
    for many in claims.chunks(store.info().batch) {
        let said = store.renew(many).await.unwrap();
        assert!(said.iter().all(|answer| matches!(answer, Answer::Granted(_))));
    }
    // The sweeps that traffic brings along are a few more.
    let renewals = writes(&server) - before;
    assert!(renewals <= 40, "{renewals}");
}
