//! Signals: which ones are ours to pass on, and the dispositions that std and tokio do not reach.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::task::Poll;

use rustix::process::{Pid, Signal, kill_current_process_group, kill_process_group};
use tokio::signal::unix::{self, SignalKind};

/// What is passed on to the program, and ends the wait for the lock.
const FORWARDED: &[Signal] =
    &[Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// The signals that others send us.
pub(crate) struct Incoming(Vec<(Signal, unix::Signal)>);

impl Incoming {
    /// Catches them from now on, except for those that our parent had us ignore: `nohup` stays in force, for
    /// us and for the program.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut incoming = Self(Vec::new());
        FORWARDED.iter().try_for_each(|signal| incoming.also(*signal))?;
        Ok(incoming)
    }

    /// Catches one more, if it does not yet.
    pub(crate) fn also(&mut self, signal: Signal) -> io::Result<()> {
        let is_new = self.0.iter().all(|(caught, _)| *caught != signal);
        if is_new && !is_ignored(signal) {
            self.0.push((signal, listen(signal)?));
        }
        Ok(())
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let ready = self.0.iter_mut().find_map(|(signal, stream)| {
                matches!(stream.poll_recv(cx), Poll::Ready(Some(()))).then_some(*signal)
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// A stream of this signal.
pub(crate) fn listen(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// To every process of the group. A group that is gone, or none of ours to signal, is no error here: there
/// is nothing that the caller could do about it.
pub(crate) fn send(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// Our own process group; `None` when it has no number here, because it was made outside of our container.
#[allow(unsafe_code, reason = "rustix takes it for granted that the number is not 0")]
pub(crate) fn own_group() -> Option<Pid> {
    // SAFETY: getpgrp has no arguments, touches no memory and cannot fail.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

/// Does to our own group what `signal` does by default: stops or ends it. Returns when somebody has
/// continued us, or at once when the kernel does not let us stop because nobody could.
pub(crate) fn suffer(signal: Signal) {
    with_disposition(signal, libc::SIG_DFL, || {
        let _ = kill_current_process_group(signal);
    });
}

/// Runs `f` while the signal is ignored.
pub(crate) fn while_ignored<T>(signal: Signal, f: impl FnOnce() -> T) -> T {
    with_disposition(signal, libc::SIG_IGN, f)
}

/// Ignores everything that can be ignored, for good: a program that is executed inherits it. Not SIGCHLD:
/// ignoring it has another meaning.
pub(crate) fn ignore_all() {
    for signal in (1..=31).filter(|raw| ![libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD].contains(raw)) {
        exchange(signal, Some(libc::SIG_IGN));
    }
}

/// Whether the signal does nothing to us.
fn is_ignored(signal: Signal) -> bool {
    exchange(signal.as_raw(), None).is_some_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

fn with_disposition<T>(signal: Signal, how: libc::sighandler_t, f: impl FnOnce() -> T) -> T {
    let before = exchange(signal.as_raw(), Some(how));
    let result = f();
    if let Some(before) = before {
        restore(signal.as_raw(), &before);
    }
    result
}

/// Sets a disposition (or none) and says what was there. Safe to call between fork and exec.
#[allow(unsafe_code, reason = "sigaction has no safe wrapper; only SIG_IGN and SIG_DFL are ever set")]
fn exchange(signal: libc::c_int, how: Option<libc::sighandler_t>) -> Option<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: both pointers are null or point to a live sigaction, for which all zeroes is a valid value;
    // the handlers are SIG_IGN or SIG_DFL, so no code of ours runs in signal context.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = how.unwrap_or(libc::SIG_DFL);
        let new = how.map_or(std::ptr::null(), |_| &raw const action);
        (libc::sigaction(signal, new, before.as_mut_ptr()) == 0).then(|| before.assume_init())
    }
}

#[allow(unsafe_code, reason = "sigaction has no safe wrapper; this puts back what was there")]
fn restore(signal: libc::c_int, action: &libc::sigaction) {
    // SAFETY: `action` came from sigaction for the same signal, so its handler is one that was installed.
    unsafe {
        libc::sigaction(signal, action, std::ptr::null_mut());
    }
}

/// Runs `f` in the child, between fork and exec.
#[allow(unsafe_code, reason = "what must be true of a program from its first instruction on is done here")]
pub(crate) fn before_exec(command: &mut Command, f: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: `f` runs after the fork of a process that may have threads, so it may do no more than a signal
    // handler may. Our two uses make the system calls getpid, write, sigaction and ioctl, allocate nothing and
    // take no lock.
    unsafe {
        command.pre_exec(f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disposition_is_put_back() {
        assert!(!is_ignored(Signal::TTOU));
        while_ignored(Signal::TTOU, || assert!(is_ignored(Signal::TTOU)));
        assert!(!is_ignored(Signal::TTOU));
    }
}
