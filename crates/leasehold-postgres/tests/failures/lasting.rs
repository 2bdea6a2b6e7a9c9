//! What must survive a crash, and what need not.

use leasehold_servers::postgres::Postgres;
use tokio::time::{Instant, timeout};

use crate::scene::*;

/// A server that writes nothing to the disk in its own time: whatever does not wait for the disk is lost with it.
fn lazy() -> Postgres {
    Postgres::with(&["fsync=off", "wal_writer_delay=10s"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_after_a_release_costs_no_more_than_the_lease() {
    let mut server = lazy();
    let client = client(&server.url()).await;
    let witness = Witness::default();
    let guard = acquire(&client).await;
    witness.granted(&guard);
    let ends = Instant::now() + LEASE;
    guard.release().await.unwrap();
    server.restart();
    let next = timeout(ends - Instant::now() + ROOM, acquire(&client)).await.expect("its lease is over");
    witness.granted(&next);
    next.release().await.unwrap();
    goes_on(&client, &witness).await;
    nothing_is_left(&server, [client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_granted_by_a_release_holds_after_a_crash() {
    let mut server = lazy();
    let (holder, waiter) = (client_on(&server.url(), LONG).await, client_on(&server.url(), LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waits = {
        let waiter = waiter.clone();
        tokio::spawn(async move { acquire(&waiter).await })
    };
    until("it waits", async || {
        holder.inspect(KEY).await.unwrap().is_some_and(|lock| lock.waiters.len() == 1)
    })
    .await;
    guard.release().await.unwrap();
    let next = timeout(SERVED, waits).await.unwrap().unwrap();
    witness.granted(&next);
    server.restart();
    still_held(&next, LONG).await;
    next.release().await.unwrap();
    nothing_is_left(&server, [holder, waiter]).await;
}

/// Whether this call waits for the disk when there were these claims: locks, ids and leases, `+` lock delays.
fn is_synced(server: &Postgres, claims: &[(&str, u8, &str)], call: &str) -> bool {
    let claims: String = claims
        .iter()
        .map(|(lock, id, lease)| {
            let (lease, delay) = lease.split_once('+').unwrap_or((lease, "0"));
            format!(
                "SELECT FROM leasehold.claim_1('{lock}', '\\x0{id}', 1, 1, 1, false, false, {lease}, 10000, {delay}, 0, 0, '', \
                 '', NULL, NULL, NULL, false);"
            )
        })
        .collect();
    let said =
        server.sql(&format!("BEGIN; {claims} SELECT leasehold.{call}; SHOW synchronous_commit; ROLLBACK"));
    let setting = said.lines().find(|line| ["on", "off"].contains(line));
    setting.expect("it was asked for") == "on"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_waits_for_the_disk_only_where_somebody_relies_on_it() {
    const ONE: &str = r"release_1('a', '\x01', NULL, 0)";
    const TWO: &str = r"releases_1('{a,b}', ARRAY['\x01', '\x02']::bytea[], '{NULL,NULL}', '{0,0}')";
    let server = Postgres::start();
    let client = client(&server.url()).await;
    // Nobody waits.
    assert!(!is_synced(&server, &[("a", 1, "30000")], ONE));
    assert!(!is_synced(&server, &[("a", 1, "30000"), ("b", 2, "30000")], TWO));
    // Undone by a crash it would be held for long, or for ever.
    assert!(is_synced(&server, &[("a", 1, "600000")], ONE));
    assert!(is_synced(&server, &[("a", 1, "NULL")], ONE));
    assert!(!is_synced(&server, &[("a", 1, "30000+20000")], ONE));
    assert!(is_synced(&server, &[("a", 1, "30000+40000")], ONE));
    // Somebody is granted. Whoever shares that commit waits too, before it and after it.
    assert!(is_synced(&server, &[("a", 1, "30000"), ("a", 3, "30000")], ONE));
    assert!(is_synced(&server, &[("a", 1, "30000"), ("a", 3, "30000"), ("b", 2, "30000")], TWO));
    assert!(is_synced(&server, &[("a", 1, "30000"), ("b", 2, "30000"), ("b", 3, "30000")], TWO));
    nothing_is_left(&server, [client]).await;
}
