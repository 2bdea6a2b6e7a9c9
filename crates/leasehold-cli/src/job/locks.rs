//! Whether the runner is inside a write of a SQLite file, where it must not be stopped for long.
//!
//! SQLite has write locks (of the POSIX kind) on a file only while it writes, and every other client of the file waits for
//! them. A runner that is stopped elsewhere, for instance by Ctrl-Z, has read locks at most, and may go on later.

use rustix::process::Pid;

/// Whether the process has a write lock on a file; `None` if the system does not tell.
pub(crate) fn holds_write_lock(process: Pid) -> Option<bool> {
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    Some(table.lines().any(|line| is_write_lock(line, process)))
}

fn is_write_lock(line: &str, process: Pid) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    // "->" in the second place is one that waits for a lock.
    matches!(words[..], [_, "POSIX", _, "WRITE", owner, ..] if owner == process.as_raw_nonzero().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_write_locks_of_the_process_count() {
        let process = Pid::from_raw(1234).unwrap();
        assert!(is_write_lock("1: POSIX  ADVISORY  WRITE 1234 fd:01:131 120 120", process));
        for other in [
            "1: POSIX  ADVISORY  READ  1234 fd:01:131 128 128",
            "1: POSIX  ADVISORY  WRITE 12345 fd:01:131 120 120",
            "1: FLOCK  ADVISORY  WRITE 1234 fd:01:131 0 EOF",
            "1: -> POSIX  ADVISORY  WRITE 1234 fd:01:131 120 120",
            "",
        ] {
            assert!(!is_write_lock(other, process), "{other}");
        }
    }
}
