//! A server whose clock is set while locks are held.

use leasehold_conformance::trouble::*;
use leasehold_core::{Gate, Loss};
use leasehold_servers::mariadb::MariaDb;

use crate::scene::Site;

const HOUR: i64 = 3600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_clock_is_set_forward_two_may_hold_and_only_the_later_one_s_writes_are_accepted() {
    let site = Site::of(MariaDb::with_a_clock());
    let [one, two] = [client(site.store(), LONG).await, client(site.store(), LONG).await];
    let (witness, resource) = (Witness::default(), Gate::new());
    for step in 1..=3 {
        let first = acquire(&one).await;
        witness.granted(&first);
        assert!(resource.admits(first.token()));
        site.server.set_clock(step * HOUR);
        // This is the overlap that docs/safety.md admits: the first one has not heard of it.
        let second = acquire(&two).await;
        witness.granted_again(&second);
        assert!(resource.admits(second.token()));
        assert!(!resource.admits(first.token()), "a later one was here");
        // It hears of it with its next renewal.
        first.renew(LONG).await.expect_err("it is gone");
        assert_eq!(lost_in_time(&first).await, Loss::Gone);
        second.release().await.expect("it holds");
    }
    nothing_is_left(|| site.left(), [one, two]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_clock_is_set_back_nobody_is_lost_and_tokens_rise() {
    let site = Site::of(MariaDb::with_a_clock());
    let [holder, waiter] = [client(site.store(), LONG).await, client(site.store(), LONG).await];
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 5, &witness).await;
    site.server.set_clock(-HOUR);
    still_held(&guard, LONG).await;
    guard.release().await.expect("it holds");
    all_served(waiting).await;
    goes_on(&holder, &witness).await;
    site.server.set_clock(0);
    nothing_is_left(|| site.left(), [holder, waiter]).await;
}
