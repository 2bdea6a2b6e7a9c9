//! The SQLite that is linked into this program.
//!
//! The program's other crates decide its version, because Cargo links only one. Versions without the fix of the
//! [WAL-reset bug](https://sqlite.org/wal.html#walresetbug) get a warning.

use leasehold_core::Check;

/// The version as a setting that the store's promises rest on.
pub(crate) fn check() -> Check {
    judge(rusqlite::version_number(), rusqlite::version())
}

fn judge(number: i32, version: &str) -> Check {
    match is_fixed(number) {
        true => Check::ok("sqlite", version),
        false => Check::warning("sqlite", version)
            .effect("two processes that write to the log at the same moment can, very rarely, corrupt the lock file")
            .remedy("let the program use rusqlite 0.39 or newer, or SQLite 3.51.3 or newer"),
    }
}

/// Whether it has the fix: 3.51.3, and the releases of 3.44 and 3.50 to which the fix was ported.
fn is_fixed(number: i32) -> bool {
    matches!(number, 3_044_006..=3_044_999 | 3_050_007..=3_050_999 | 3_051_003..)
}

#[cfg(test)]
mod tests {
    use leasehold_core::Severity;

    use super::*;

    #[test]
    fn versions_that_can_corrupt_the_log_are_warnings() {
        for (number, severity) in [
            (3_044_005, Severity::Warning),
            (3_044_006, Severity::Ok),
            (3_046_000, Severity::Warning),
            (3_050_006, Severity::Warning),
            (3_050_007, Severity::Ok),
            (3_051_002, Severity::Warning),
            (3_051_003, Severity::Ok),
            (3_053_001, Severity::Ok),
        ] {
            assert_eq!(judge(number, "x").severity, severity, "{number}");
        }
    }
}
