//! The last item of a shop, two sellers, and one of them falls asleep while it holds the lock.
//!
//! `cargo run -p leasehold-postgres --example inventory -- postgres://user@host/database`
//!
//! The lock keeps the sellers apart as long as its lease lasts. The sleeper wakes up after that, believes what it read
//! before, and writes. Its token is smaller than the one that the row has seen, so its write touches no row: nothing is
//! sold twice.

use std::time::Duration;

use leasehold_core::{Client, FenceColumn, Guard, Options};
use leasehold_postgres::Postgres;
use tokio_postgres::{Client as Database, NoTls};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const LEASE: Duration = Duration::from_millis(500);

#[allow(dead_code, reason = "a test includes this file and has a main of its own")]
#[tokio::main]
async fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).ok_or("which database? postgres://user@host/database")?;
    let left = sell_to_two(&url).await?;
    assert_eq!(left, 0);
    Ok(())
}

/// What is left of one item after both sellers tried.
pub(crate) async fn sell_to_two(url: &str) -> Outcome<i64> {
    let (database, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    database
        .batch_execute(
            "DROP TABLE IF EXISTS shop_items;
             CREATE TABLE shop_items (name text PRIMARY KEY, stock bigint NOT NULL, fence bigint);
             INSERT INTO shop_items VALUES ('teapot', 1, NULL)",
        )
        .await?;
    let (sleeper, other) = (seller(url).await?, seller(url).await?);

    let held = sleeper.mutex("shop/teapot").acquire().await?;
    let seen = stock(&database).await?;
    // A long pause: the machine sleeps, the debugger stops, the disk hangs. The lease ends meanwhile.
    let token = held.token();
    let next = other.mutex("shop/teapot").acquire().await?;
    let sold = sell(&database, stock(&database).await?, &next).await?;
    assert!(sold, "it was in stock");
    next.release().await?;

    // It wakes up, and writes what it decided on.
    assert!(next_is_larger(&database, token).await?);
    let sold_again = sell(&database, seen, &held).await?;
    assert!(!sold_again, "the same teapot twice");
    stock(&database).await
}

/// Holds on a fixed lease: whoever sleeps does not renew.
async fn seller(url: &str) -> Outcome<Client> {
    let options = Options::new().fixed(LEASE);
    Ok(Client::builder().defaults(options).connect(Postgres::from_url(url)?).await?)
}

async fn stock(database: &Database) -> Outcome<i64> {
    Ok(database.query_one("SELECT stock FROM shop_items WHERE name = 'teapot'", &[]).await?.get(0))
}

/// Sells one of `seen`, unless somebody with a larger token has written since.
async fn sell(database: &Database, seen: i64, guard: &Guard) -> Outcome<bool> {
    if seen == 0 {
        return Ok(false);
    }
    let fence = FenceColumn::new("fence")?;
    let sql = format!(
        "UPDATE shop_items SET stock = $1, {} WHERE name = 'teapot' AND {}",
        fence.assign("$2"),
        fence.admits("$2")
    );
    let token = i64::try_from(guard.token())?;
    Ok(database.execute(&sql, &[&(seen - 1), &token]).await? == 1)
}

async fn next_is_larger(database: &Database, token: u64) -> Outcome<bool> {
    let row = database.query_one("SELECT fence FROM shop_items WHERE name = 'teapot'", &[]).await?;
    Ok(row.get::<_, i64>(0) > i64::try_from(token)?)
}
