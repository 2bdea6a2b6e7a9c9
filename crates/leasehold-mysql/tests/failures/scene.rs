//! A server with a way to it that can be broken.

use std::sync::Arc;

use leasehold_conformance::trouble::{Replies, Server};
use leasehold_core::Store;
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::{Mode, Proxy};

pub(crate) struct Site {
    pub(crate) server: MariaDb,
    proxy: Proxy,
}

/// What is over is swept by traffic, of which there is none at the end.
const ROWS: &str = "DELETE FROM test.leasehold_refusals WHERE until <=
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000;
    SELECT (SELECT count(*) FROM test.leasehold_keys), (SELECT count(*) FROM test.leasehold_claims),
           (SELECT count(*) FROM test.leasehold_refusals), (SELECT count(*) FROM test.leasehold_rows)";

impl Site {
    pub(crate) fn new() -> Self {
        Self::of(MariaDb::start())
    }

    pub(crate) fn of(server: MariaDb) -> Self {
        let proxy = Proxy::to(server.port());
        Self { server, proxy }
    }
}

pub(crate) fn store(url: &str) -> Arc<dyn Store> {
    Arc::new(Mysql::from_url(url).unwrap())
}

impl Server for Site {
    fn store(&self) -> Arc<dyn Store> {
        store(&self.server.url())
    }

    fn behind(&self) -> Arc<dyn Store> {
        store(&format!("mysql://root@127.0.0.1:{}/test?timeout=1s", self.proxy.port()))
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
        self.server.process().freeze();
    }

    fn thaw(&mut self) {
        self.server.process().thaw();
    }

    fn end_connections(&self) {
        for id in self.server.connections() {
            self.server.end_connection(id);
        }
    }

    fn left(&self) -> String {
        let (rows, connections) = (self.server.sql(ROWS), self.server.connections().len());
        match (rows.as_str(), connections) {
            ("0\t0\t0\t0", 0) => String::new(),
            _ => format!("rows {rows}, {connections} connections"),
        }
    }
}
