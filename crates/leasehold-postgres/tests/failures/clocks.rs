//! A server whose clock is set while locks are held.

use std::time::Duration;

use leasehold_core::{Gate, Loss};
use leasehold_servers::postgres::Postgres;
use tokio::time::timeout;

use crate::scene::*;

const HOUR: i64 = 3600;
/// So long that only the clock can be the reason for its end.
const LONG: Duration = Duration::from_secs(60);
/// Ends a hang.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_clock_is_set_forward_two_may_hold_and_only_the_later_one_s_writes_are_accepted() {
    let server = Postgres::with_a_clock();
    let (one, two) = (client_on(&server.url(), LONG).await, client_on(&server.url(), LONG).await);
    let gate = Gate::new();
    for step in 1..=3 {
        let first = acquire(&one).await;
        assert!(gate.admits(first.token()));
        server.set_clock(step * HOUR);
        // This is the overlap that docs/safety.md admits: the first one has not heard of it.
        let second = timeout(SOON, acquire(&two)).await.expect("the lease is over, by the server's clock");
        assert!(second.token() > first.token());
        assert!(gate.admits(second.token()));
        assert!(!gate.admits(first.token()), "a later one was here");
        // It hears of it with its next renewal.
        first.renew(LONG).await.expect_err("it is gone");
        assert_eq!(timeout(SOON, first.lost()).await.expect("it was told"), Loss::Gone);
        second.release().await.expect("it holds");
    }
    nothing_is_left(&server, [one, two]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_clock_is_set_back_nobody_is_lost_and_tokens_rise() {
    let server = Postgres::with_a_clock();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 5, &witness).await;
    server.set_clock(-HOUR);
    still_held(&guard, LEASE).await;
    guard.release().await.expect("it holds");
    all_served(waiting).await;
    goes_on(&holder, &witness).await;
    server.set_clock(0);
    nothing_is_left(&server, [holder, waiter]).await;
}
