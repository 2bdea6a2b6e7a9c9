//! MariaDB: rows, and connections.

use std::future::ready;

use leasehold_servers::mariadb::MariaDb;

use super::{Look, Server};

const ROWS: &str = "SELECT (SELECT count(*) FROM leasehold_claims) + (SELECT count(*) FROM leasehold_keys)
    + (SELECT count(*) FROM leasehold_refusals) + (SELECT count(*) FROM leasehold_rows)";

impl Server for MariaDb {
    fn url(&self) -> String {
        self.url()
    }

    fn rows(&self) -> Look<'_> {
        let rows = self.sql(&format!("USE test; {ROWS}"));
        Box::pin(ready(rows.parse().map_err(Into::into)))
    }

    fn sessions(&self) -> Look<'_> {
        Box::pin(ready(Ok(self.connections().len())))
    }
}
