//! The example in which a paused writer is refused, on a server of its own.

#[path = "../examples/inventory.rs"]
mod example;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sold_twice_when_a_seller_falls_asleep() {
    let server = leasehold_servers::postgres::Postgres::start();
    assert_eq!(example::sell_to_two(&server.url()).await.expect("both sellers come to an end"), 0);
}
