//! A standby that takes over.

use std::time::Duration;

use leasehold_servers::postgres::Postgres;
use leasehold_servers::wait_until;

use crate::scene::*;

/// So long that its end cannot be the reason for anything.
const LONG: Duration = Duration::from_secs(60);
/// Ends a hang.
const SOON: Duration = Duration::from_secs(30);

/// A server whose commits wait for a standby, and that standby.
fn pair() -> (Postgres, Postgres) {
    let primary = Postgres::start();
    let standby = Postgres::standby_of(&primary);
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    wait_until("the standby is waited for", SOON, || primary.sql(synchronous) == "1");
    (primary, standby)
}

fn take_over(mut primary: Postgres, standby: &Postgres) {
    primary.kill();
    standby.promote();
}

fn url_of(primary: &Postgres, standby: &Postgres, mode: &str) -> String {
    let (one, two) = (primary.port(), standby.port());
    format!("postgres://postgres@127.0.0.1:{one},127.0.0.1:{two}/postgres?mode={mode}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_takes_over_with_the_holder_and_the_queue() {
    let (primary, standby) = pair();
    let url = url_of(&primary, &standby, "lease");
    let (holder, waiter) = (client_on(&url, LONG).await, client_on(&url, LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 5, &witness).await;
    take_over(primary, &standby);
    still_held(&guard, LONG).await;
    guard.release().await.expect("the standby answers");
    all_served(waiting).await;
    nothing_is_left(&standby, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_locks_end_with_the_primary_and_tokens_rise_on_the_standby() {
    for mode in ["advisory", "rowlock"] {
        let (primary, standby) = pair();
        let client = client_on(&url_of(&primary, &standby, mode), LONG).await;
        let witness = Witness::default();
        let guard = acquire(&client).await;
        witness.granted(&guard);
        take_over(primary, &standby);
        lost_in_time(&guard).await;
        drop(guard);
        goes_on(&client, &witness).await;
        nothing_is_left(&standby, [client]).await;
    }
}
