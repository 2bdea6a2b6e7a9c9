//! Servers that are out of something, and rows that others keep.

use leasehold_core::{Claim, ErrorKind, Key, Store, Units};
use leasehold_servers::postgres::Postgres;
use tokio::time::timeout;

use crate::scene::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_connection_is_left_the_error_says_so_and_a_holder_goes_on() {
    let server = Postgres::with(&["fsync=off", "max_connections=8", "superuser_reserved_connections=2"]);
    server.sql("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app");
    let url = server.url().replace("postgres@", "app@");
    let holder = client(&format!("{url}?connections=1")).await;
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    // Two each: the next but one finds none.
    let mut others = Vec::new();
    let error = loop {
        let store = leasehold_postgres::Postgres::from_url(&format!("{url}?connections=1")).unwrap();
        match leasehold_core::Client::new(store).await {
            Ok(client) => others.push(client),
            Err(error) => break error,
        }
        assert!(others.len() < 4, "there are only six connections");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    still_held(&guard, LEASE).await;
    guard.release().await.expect("its connection is there");
    others.push(holder);
    nothing_is_left(&server, others).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_for_a_row_ends_at_the_server_too_and_did_not_happen() {
    let server = Postgres::start();
    let client = client(&server.url()).await;
    let guard = acquire(&client).await;
    let (keeper, moves) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    let moves = tokio::spawn(moves);
    keeper.batch_execute("BEGIN; SELECT FROM leasehold.keys FOR UPDATE").await.unwrap();
    // The server gives up a second before we do: room for a busy machine.
    let store = leasehold_postgres::Postgres::from_url(&format!("{}?timeout=5s", server.url())).unwrap();
    let claim = Claim::new(Key::new(KEY).unwrap(), 1, Units::Exactly(1)).unwrap();
    let asked = timeout(SERVED, store.claim(&claim)).await.expect("every call ends");
    let error = asked.expect_err("the row is not to be had");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    keeper.batch_execute("ROLLBACK").await.unwrap();
    drop((keeper, store));
    let _ = moves.await;
    let seen = client.inspect(KEY).await.unwrap().expect("it is held");
    assert!(seen.waiters.is_empty() && seen.holders.len() == 1);
    guard.release().await.expect("the row is free");
    nothing_is_left(&server, [client]).await;
}
