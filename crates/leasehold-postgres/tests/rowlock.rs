//! PostgreSQL's row locks before the suite that judges every store.

mod judged;

use std::process::ExitCode;

/// Everybody who has the row locked, as the row itself says.
const COUNT: &str = "WITH held AS (
        SELECT unnest(l.pids) FROM pgrowlocks('leasehold.rows') l JOIN leasehold.rows r ON r.ctid = l.locked_row
        WHERE r.name = $1
    ) SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM held), 0::bigint,
        (SELECT count(*) FROM leasehold.rows WHERE name = $1)";

fn main() -> ExitCode {
    judged::judge("postgres-rowlock", judged::Kept { name: "rowlock", count: COUNT })
}
