//! PostgreSQL: rows of the lock tables, and connections.

use leasehold_servers::postgres::Postgres;
use tokio_postgres::NoTls;

use super::{Look, Server};
use crate::Outcome;

const ROWS: &str = "SELECT (SELECT count(*) FROM leasehold.keys) + (SELECT count(*) FROM leasehold.claims)
    + (SELECT count(*) FROM leasehold.refusals) + (SELECT count(*) FROM leasehold.rows)";
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leasehold%'";

impl Server for Postgres {
    fn url(&self) -> String {
        self.url()
    }

    fn rows(&self) -> Look<'_> {
        Box::pin(count(self.url(), ROWS))
    }

    fn sessions(&self) -> Look<'_> {
        Box::pin(count(self.url(), SESSIONS))
    }
}

async fn count(url: String, sql: &str) -> Outcome<usize> {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let moves = tokio::spawn(connection);
    let count: i64 = client.query_one(sql, &[]).await?.try_get(0)?;
    drop(client);
    let _ = moves.await;
    Ok(usize::try_from(count)?)
}
