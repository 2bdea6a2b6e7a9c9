//! The MySQL store on MariaDB before the suite that judges every store.

mod judged;

use std::process::ExitCode;

use judged::{Kept, hex, judge};
use leasehold_conformance::RawState;
use mysql_async::prelude::Queryable;

/// Every refusal is counted: a trial has its server for itself.
const COUNT: &str = "SELECT
    (SELECT count(*) FROM leasehold_claims WHERE name = ?1 AND held > 0),
    (SELECT CAST(coalesce(sum(held), 0) AS SIGNED) FROM leasehold_claims WHERE name = ?1),
    (SELECT count(*) FROM leasehold_claims WHERE name = ?1 AND held < wanted),
    (SELECT count(*) FROM leasehold_claims WHERE name = ?1)
        + (SELECT count(*) FROM leasehold_keys WHERE name = ?1) + (SELECT count(*) FROM leasehold_refusals)";

fn main() -> ExitCode {
    judge(
        "mysql",
        Kept {
            name: "lease",
            look: |conn, key| {
                Box::pin(async move {
                    let counts = conn.query_first(COUNT.replace("?1", &format!("x'{}'", hex(key)))).await?;
                    let (holders, units, waiters, residue): (u32, u64, u32, u32) = counts.unwrap_or_default();
                    let [holders, waiters, residue] = [holders, waiters, residue].map(|n| n as usize);
                    Ok(RawState { holders, units, waiters, residue })
                })
            },
        },
    )
}
