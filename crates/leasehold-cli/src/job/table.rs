//! The system's table of processes, for questions that signals do not answer.

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, test_kill_process_group, waitid};

/// A line of the table.
struct Process {
    pid: Pid,
    /// By a signal or a debugger. A process that waits for a disk is not stopped.
    is_stopped: bool,
    /// It cannot do anything any more, and waits for its parent to ask for its status.
    has_ended: bool,
    parent: i32,
    group: i32,
}

/// Every process that `/proc` shows; none where there is no `/proc`.
fn processes() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    pids.filter_map(process)
}

/// One process; `None` if `/proc` does not show it.
fn process(pid: Pid) -> Option<Process> {
    parse(pid, &std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

fn parse(pid: Pid, stat: &str) -> Option<Process> {
    // The name is in brackets and may contain anything, brackets too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
    let (state, threads) = (*fields.first()?, number(17)?);
    let is_stopped = matches!(state, "T" | "t");
    // The state is that of the main thread. A program may end that one and go on with the others.
    let has_ended = matches!(state, "Z" | "X") && threads <= 1;
    Some(Process { pid, is_stopped, has_ended, parent: number(1)?, group: number(2)? })
}

/// Whether the process is stopped; `None` if the system does not tell.
pub(crate) fn is_stopped(pid: Pid) -> Option<bool> {
    process(pid).map(|process| process.is_stopped)
}

/// Whether a process of the group can still do something. Signals reach zombies too, and a zombie stays for as long as its
/// parent does not ask for it, which the first process of a container may never do.
pub(crate) fn is_alive(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    let (mut zombies, mut alive) = (false, false);
    for process in processes().filter(|process| process.group == group.as_raw_nonzero().get()) {
        zombies |= process.has_ended;
        alive |= !process.has_ended;
    }
    // `/proc` may hide the processes of other users: without a zombie, the signal is believed.
    alive || !zombies
}

/// As the first process of a container we inherit every orphan: takes those that have ended off the table, but for `spared`,
/// our own children, whose owners ask for them.
pub(crate) fn reap_orphans(spared: &[Pid]) {
    if getpid() != Pid::INIT {
        return;
    }
    let ended = |process: &Process| process.has_ended && process.parent == Pid::INIT.as_raw_nonzero().get();
    for process in processes().filter(ended).filter(|process| !spared.contains(&process.pid)) {
        let _ = waitid(WaitId::Pid(process.pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of `/proc` with this name, state and number of threads.
    fn line(name: &str, state: char, threads: u32) -> String {
        format!("7 ({name}) {state} 3 9 9 0 -1 4194304 98 0 0 0 0 0 0 0 20 0 {threads} 0 1817 2506752")
    }

    #[test]
    fn a_name_with_brackets_does_not_confuse_the_parser() {
        let found = parse(Pid::INIT, &line("a) Z 1 (b)", 'S', 1)).unwrap();
        assert_eq!((found.has_ended, found.parent, found.group), (false, 3, 9));
    }

    #[test]
    fn only_a_signal_or_a_debugger_stops_a_process() {
        for (state, is_stopped) in [('T', true), ('t', true), ('D', false), ('S', false), ('R', false)] {
            assert_eq!(parse(Pid::INIT, &line("a", state, 2)).unwrap().is_stopped, is_stopped, "{state}");
        }
    }

    #[test]
    fn zombie_with_living_threads_has_not_ended() {
        assert!(parse(Pid::INIT, &line("a", 'Z', 1)).unwrap().has_ended);
        assert!(!parse(Pid::INIT, &line("a", 'Z', 2)).unwrap().has_ended);
    }
}
