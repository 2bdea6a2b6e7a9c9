//! MariaDB's named locks before the suite that judges every store.

mod judged;

use std::process::ExitCode;

use judged::{Kept, hex, judge};
use leasehold_conformance::RawState;
use mysql_async::prelude::Queryable;

fn main() -> ExitCode {
    judge(
        "mysql-advisory",
        Kept {
            name: "advisory",
            look: |conn, key| {
                Box::pin(async move {
                    let full = hex(&format!("test/leasehold_/{key}"));
                    let name = format!("CONCAT('leasehold.', LEFT(SHA2(x'{full}', 256), 54))");
                    let held: Option<Option<u64>> =
                        conn.query_first(format!("SELECT IS_USED_LOCK({name})")).await?;
                    let held = usize::from(held.flatten().is_some());
                    Ok(RawState { holders: held, units: held as u64, waiters: 0, residue: held })
                })
            },
        },
    )
}
