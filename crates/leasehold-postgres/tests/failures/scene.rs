//! A server with a way to it that can be broken.

use std::sync::Arc;
use std::time::Duration;

pub(crate) use leasehold_conformance::trouble::*;
use leasehold_core::{Client, Store};
use leasehold_servers::postgres::Postgres;
use leasehold_servers::{Mode, Proxy};

pub(crate) struct Site {
    server: Postgres,
    proxy: Proxy,
}

const OURS: &str = "FROM pg_stat_activity WHERE application_name = 'leasehold'";
/// What is over is swept by traffic, of which there is none at the end.
const ROWS: &str = "DELETE FROM leasehold.refusals WHERE until <= leasehold.clock_1();
    SELECT (SELECT count(*) FROM leasehold.keys), (SELECT count(*) FROM leasehold.claims),
           (SELECT count(*) FROM leasehold.refusals)";

impl Site {
    pub(crate) fn new() -> Self {
        let server = Postgres::start();
        let proxy = Proxy::to(server.port());
        Self { server, proxy }
    }
}

fn store(url: &str) -> Arc<dyn Store> {
    Arc::new(leasehold_postgres::Postgres::from_url(url).unwrap())
}

pub(crate) async fn client(url: &str) -> Client {
    client_on(url, LEASE).await
}

pub(crate) async fn client_on(url: &str, lease: Duration) -> Client {
    leasehold_conformance::trouble::client(store(url), lease).await
}

/// No row is left in the database when its clients are gone, no connection, and no task of theirs.
pub(crate) async fn nothing_is_left(server: &Postgres, clients: impl IntoIterator<Item = Client>) {
    leasehold_conformance::trouble::nothing_is_left(|| left(server), clients).await;
}

fn left(server: &Postgres) -> String {
    let rows = server.sql(ROWS).lines().last().unwrap_or_default().to_owned();
    let connections = server.sql(&format!("SELECT count(*) {OURS}"));
    match (rows.as_str(), connections.as_str()) {
        ("0|0|0", "0") => String::new(),
        _ => format!("rows {rows}, {connections} connections"),
    }
}

impl Server for Site {
    fn store(&self) -> Arc<dyn Store> {
        store(&self.server.url())
    }

    fn behind(&self) -> Arc<dyn Store> {
        store(&format!("postgres://postgres@127.0.0.1:{}/postgres?timeout=1s", self.proxy.port()))
    }

    fn replies(&self, how: Replies) {
        self.proxy.set(match how {
            Replies::Pass => Mode::Pass,
            Replies::CutAfter(bytes) => Mode::CutReplyAfter(bytes),
            Replies::Garbage => Mode::Garbage,
            Replies::Lost => Mode::DropReplies,
            Replies::Held => Mode::Hold,
        });
    }

    fn restart(&mut self) {
        self.server.restart();
    }

    fn freeze(&mut self) {
        self.server.freeze();
    }

    fn thaw(&mut self) {
        self.server.thaw();
    }

    fn end_connections(&self) {
        self.server.sql(&format!("SELECT count(pg_terminate_backend(pid)) {OURS}"));
    }

    fn left(&self) -> String {
        left(&self.server)
    }
}
