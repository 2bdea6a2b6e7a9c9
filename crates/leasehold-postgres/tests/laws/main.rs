//! Laws that PostgreSQL itself can break: its numbers, its roles, its row locks and its settings.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod numbers;
#[path = "../recipes/mod.rs"]
mod recipes;
mod roles;
mod rows;
mod settings;

use std::time::Duration;

use leasehold_core::{Answer, Claim, Client, Key, Options, Store, Units};
use leasehold_postgres::Postgres;
use leasehold_servers::postgres::Postgres as Server;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::NoTls;

/// Ends a hang.
const SOON: Duration = Duration::from_secs(30);
/// So long that its end cannot be the reason for anything.
const LONG: Duration = Duration::from_secs(300);
const SESSIONS: [&str; 2] = ["advisory", "rowlock"];

fn store(url: &str) -> Postgres {
    Postgres::from_url(url).unwrap()
}

/// A client on this lease. A server that has just started may take a few attempts.
async fn client(url: &str, lease: Duration) -> Client {
    let end = Instant::now() + SOON;
    loop {
        let builder = Client::builder().defaults(Options::new().lease(lease));
        match builder.connect(store(url)).await {
            Ok(client) => return client,
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error}"),
        }
    }
}

fn claim(name: &str) -> Claim {
    Claim::new(Key::new(name).unwrap(), 1, Units::Exactly(1)).unwrap()
}

/// The token of a claim that is granted immediately.
async fn token(store: &Postgres, claim: &Claim) -> u64 {
    match store.claim(claim).await.unwrap() {
        Answer::Granted(grant) => grant.token,
        other => panic!("not granted: {other:?}"),
    }
}

/// Acquires and releases a mutex. Returns the token.
async fn take(client: &Client, name: &str) -> u64 {
    let guard = client.mutex(name).acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

/// The same on a connection of its own, as one run of the command does.
async fn run(url: &str) -> u64 {
    let client = client(url, LONG).await;
    let token = take(&client, "k").await;
    client.close().await.unwrap();
    token
}

fn in_mode(server: &Server, mode: &str) -> String {
    format!("{}?mode={mode}", server.url())
}

/// A plain connection, without Leasehold.
async fn session(url: &str) -> (tokio_postgres::Client, JoinHandle<Result<(), tokio_postgres::Error>>) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    (client, tokio::spawn(connection))
}
