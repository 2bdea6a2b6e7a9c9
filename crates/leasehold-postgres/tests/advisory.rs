//! PostgreSQL's advisory locks before the suite that judges every store.

mod judged;

use std::process::ExitCode;

/// The server shows one lock of a session, however often that took it. Nothing is stored.
const COUNT: &str = "WITH held AS (
        SELECT l.mode FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended('leasehold/leasehold/' || $1::text, 0)
    ) SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM held), 0::bigint, (SELECT count(*) FROM held)";

fn main() -> ExitCode {
    judged::judge("postgres-advisory", judged::Kept { name: "advisory", count: COUNT })
}
