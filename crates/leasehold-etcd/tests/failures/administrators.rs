//! What people do to a cluster by hand.

use std::time::Duration;

use leasehold_core::Loss;
use leasehold_servers::etcd::Etcd;
use tokio::time::timeout;

use crate::scene::*;

/// The names of the lock's keys that hold.
fn holding(server: &Etcd) -> Vec<String> {
    let said = server.ctl(&["get", "--prefix", "--keys-only", "leasehold/lock/"]);
    said.lines().filter(|line| line.contains("/hold/")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_lease_is_lost_at_once_and_the_client_goes_on() {
    // Renewals come every third of it: what is noticed before that was told.
    const LONGER: Duration = Duration::from_secs(90);
    let server = Etcd::start();
    let holder = client_with(&server.url(), LONGER).await;
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let leases = server.ctl(&["lease", "list"]);
    server.ctl(&["lease", "revoke", leases.lines().nth(1).expect("the session is there")]);
    assert_eq!(timeout(ROOM, guard.lost()).await.expect("the end of a session is heard of"), Loss::Gone);
    drop(guard);
    goes_on(&holder, &witness).await;
    nothing_is_left(|words| server.ctl(words), [holder]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_somebody_deleted_is_lost_with_the_next_renewal_and_the_others_stay() {
    let server = Etcd::start();
    let holder = client(&server.url()).await;
    let guard = acquire(&holder).await;
    let doomed = holding(&server);
    let other = holder.mutex("another").acquire().await.unwrap();
    server.ctl(&["del", &doomed[0]]);
    assert_eq!(timeout(LEASE / 3 + ROOM, guard.lost()).await.expect("renewals compare"), Loss::Gone);
    assert!(other.is_valid());
    other.release().await.unwrap();
    drop(guard);
    nothing_is_left(|words| server.ctl(words), [holder]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_under_a_locks_name_is_left_alone_and_reported() {
    let server = Etcd::start();
    let client = client(&server.url()).await;
    server.ctl(&["put", "leasehold/lock/orders%2F42/hold/mine", "a value of somebody's"]);
    let error = client.mutex(KEY).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), leasehold_core::ErrorKind::Conflict);
    assert!(server.ctl(&["get", "leasehold/lock/orders%2F42/hold/mine"]).contains("somebody's"));
    server.ctl(&["del", "leasehold/lock/orders%2F42/hold/mine"]);
    nothing_is_left(|words| server.ctl(words), [client]).await;
}
