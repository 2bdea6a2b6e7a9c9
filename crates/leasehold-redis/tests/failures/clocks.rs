//! A server that takes over with a clock that is behind.

use std::time::{Duration, SystemTime};

use leasehold_servers::redis::Redis;
use leasehold_servers::wait_until;

use crate::scene::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_grants_larger_tokens_although_its_clock_is_behind() {
    let mut primary = Redis::start();
    let replica = Redis::replica_behind(&primary, 5);
    let (before, after) = (client(&primary.url()).await, client(&replica.url()).await);
    let witness = Witness::default();
    goes_on(&before, &witness).await;
    let fence = ["get", "leasehold.fence"];
    wait_until("the replica has what was so far", SERVED, || replica.cli(&fence) == primary.cli(&fence));
    // And does not hear of the last grant any more.
    replica.cli(&["replicaof", "no", "one"]);
    let guard = acquire(&before).await;
    witness.granted(&guard);
    primary.process().kill();
    // This failover lost the grant, as docs/safety.md admits.
    let second = acquire(&after).await;
    witness.granted_again(&second);
    lost_in_time(&guard).await;
    drop((guard, second));
    nothing_is_left(&replica, [before, after]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_connected_to_a_replica_does_not_take_it_for_its_primary_when_it_is_promoted() {
    let primary = Redis::start();
    // Its seconds come round again after the failover: nothing but its name tells that it is another server.
    let replica = Redis::replica_behind(&primary, 3);
    let (before, after) = (client(&primary.url()).await, client(&replica.url()).await);
    let witness = Witness::default();
    goes_on(&before, &witness).await;
    // In the second for which the fence says who wrote it.
    let second = Duration::from_secs(wall_clock().as_secs() + 2);
    sleep_until(second + Duration::from_millis(50)).await;
    goes_on(&before, &witness).await;
    let fence = ["get", "leasehold.fence"];
    wait_until("the replica has what was so far", SERVED, || replica.cli(&fence) == primary.cli(&fence));
    replica.cli(&["replicaof", "no", "one"]);
    goes_on(&before, &witness).await;
    sleep_until(second + Duration::from_millis(3_300)).await;
    goes_on(&after, &witness).await;
    nothing_is_left(&replica, [before, after]).await;
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970")
}

async fn sleep_until(at: Duration) {
    tokio::time::sleep(at.saturating_sub(wall_clock())).await;
}
