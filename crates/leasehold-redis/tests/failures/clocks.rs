//! A server that takes over with a clock that is behind.

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
