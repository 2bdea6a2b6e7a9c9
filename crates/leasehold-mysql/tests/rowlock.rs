//! MariaDB's row locks before the suite that judges every store.

mod judged;

use std::process::ExitCode;

use judged::{Kept, hex, judge};
use leasehold_conformance::RawState;
use leasehold_servers::mariadb::Kind;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

/// How much of a key the server prints.
const PRINTED: usize = 30;

/// Who has a record locked, as the server's own report has it: locks of the table, each with its records.
fn lockers(report: &str, key: &str) -> usize {
    let first = hex(key);
    let first = &first[..first.len().min(2 * PRINTED)];
    // Before that it tells of the last deadlock.
    let (_, now) = report.split_once("LIST OF TRANSACTIONS").unwrap_or_default();
    let mut ours = false;
    let mut many = 0;
    for line in now.lines() {
        if line.starts_with("RECORD LOCKS") {
            ours = line.contains("`leasehold_rows`") && !line.contains("waiting");
        } else if ours && line.trim_start().starts_with("0: len") && line.contains(&format!("hex {first};")) {
            many += 1;
        }
    }
    many
}

/// How many have the row of a lock locked, as the server itself has it.
async fn holders(conn: &mut Conn, key: &str) -> Result<usize, mysql_async::Error> {
    if Kind::tested() == Kind::MariaDb {
        let report: Option<(String, String, String)> = conn.query_first("SHOW ENGINE INNODB STATUS").await?;
        return Ok(lockers(&report.unwrap_or_default().2, key));
    }
    // MySQL's report leaves out those who only share.
    let locked = format!(
        "SELECT count(*) FROM performance_schema.data_locks WHERE object_name = 'leasehold_rows' \
         AND lock_type = 'RECORD' AND lock_status = 'GRANTED' AND LOWER(lock_data) = '0x{}'",
        hex(key)
    );
    Ok(conn.query_first(locked).await?.unwrap_or(0))
}

fn main() -> ExitCode {
    judge(
        "mysql-rowlock",
        Kept {
            name: "rowlock",
            look: |conn, key| {
                Box::pin(async move {
                    let held = holders(conn, key).await?;
                    let count = format!("SELECT count(*) FROM leasehold_rows WHERE name = x'{}'", hex(key));
                    let rows: Option<usize> = conn.query_first(count).await?;
                    Ok(RawState { holders: held, units: held as u64, waiters: 0, residue: rows.unwrap_or(0) })
                })
            },
        },
    )
}
