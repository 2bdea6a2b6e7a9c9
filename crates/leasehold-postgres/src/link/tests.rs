//! How many connections there are.

use futures_util::future::try_join_all;
use leasehold_servers::postgres::Postgres;

use super::*;
use crate::ask;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_anything_to_do_are_closed_but_for_one() {
    let server = Postgres::start();
    let link = Link::new(Target::parse(&server.url()).unwrap()).unwrap();
    let many = || locked(&link.inner.pool).wires.len();
    while many() < 2 || locked(&link.inner.pool).opening {
        try_join_all((0..8).map(|_| link.call(ask::look(Vec::new())))).await.unwrap();
    }
    locked(&link.inner.pool).close_the_idle();
    assert!(many() > 1, "they were just used");
    locked(&link.inner.pool).close_the_idle();
    assert_eq!(many(), 1);
    link.call(ask::look(Vec::new())).await.expect("that one works");
}
