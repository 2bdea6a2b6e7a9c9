//! The PostgreSQL store before the suite that judges every store.

mod judged;

use std::process::ExitCode;

/// Every refusal is counted: a trial has its server for itself.
const COUNT: &str = "SELECT
    (SELECT count(*) FROM leasehold.claims WHERE name = $1 AND held > 0),
    (SELECT coalesce(sum(held), 0)::bigint FROM leasehold.claims WHERE name = $1),
    (SELECT count(*) FROM leasehold.claims WHERE name = $1 AND held < wanted),
    (SELECT count(*) FROM leasehold.claims WHERE name = $1)
        + (SELECT count(*) FROM leasehold.keys WHERE name = $1) + (SELECT count(*) FROM leasehold.refusals)";

fn main() -> ExitCode {
    judged::judge("postgres", judged::Kept { name: "lease", count: COUNT })
}
