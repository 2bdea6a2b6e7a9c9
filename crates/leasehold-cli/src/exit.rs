//! The exit codes: one enum, and the only place that knows the numbers.

use std::process::ExitCode;
use std::{fmt, io};

use leasehold::{Error, ErrorKind};

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done.
    Success,
    /// The program's own exit code.
    Program(u8),
    /// The program, or we while waiting, ended by this signal.
    Signal(i32),
    /// The arguments make no sense.
    Usage,
    /// The key is in use with another limit or kind.
    Conflict,
    /// The store does not answer, or refuses us.
    Unavailable,
    /// Somebody else has the lock, now or for all of the wait limit.
    Busy,
    /// The lock was lost while the program ran.
    Lost,
    /// The program cannot be started.
    NotExecutable,
    /// There is no such program.
    NotFound,
}

/// What each code means: for `--help` and the manual.
pub(crate) const STATUS: &str = "  0        done; for `run` and `elect`, the program's own status:
  1..255   the program's exit code, 128+n when signal n ended it
  64       usage: bad argument, duration, key, permits or store URL
  65       the key is in use with another limit or kind
  69       the store cannot be reached, or refuses us
  75       busy: --try found somebody else, the --wait limit passed, the job is not due, or the
           latch is set already
  79       lost: the lock or leadership ended while the program ran, and the program was ended;
           or the latch was deleted while it was waited for
  126      the program cannot be executed, and the key is free again; or the runner could not
           watch it any longer, and ended it
  127      the program was not found; the key is free again
";

/// What is read from the environment and put there.
pub(crate) const ENVIRONMENT: &str = "  LEASEHOLD_STORE    the store, when --store is not given
  XDG_STATE_HOME     where the default store is: leasehold/locks.db in it, or in ~/.local/state
  RUST_LOG           what to log to stderr, for example leasehold_core=debug
  LEASEHOLD_KEY, LEASEHOLD_TOKEN
                     set for the program that `run` or `elect` starts: the key, and the fencing
                     token, a number larger than that of every earlier holder
  LEASEHOLD_HELD_ON  set for the program as well: the store's URL with the password hidden, by which
                     a run inside a run of the same key is recognised
";

/// The end of `--help`.
pub(crate) fn help() -> String {
    format!("Exit status:\n{STATUS}\nEnvironment:\n{ENVIRONMENT}")
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Program(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Self::Usage => 64,
            Self::Conflict => 65,
            Self::Unavailable => 69,
            Self::Busy => 75,
            Self::Lost => 79,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An end that needs an explanation on stderr.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Exit::Usage,
            ErrorKind::Conflict => Exit::Conflict,
            ErrorKind::Lost => Exit::Lost,
            _ => Exit::Unavailable,
        };
        Self::new(exit, error.to_string())
    }
}

/// Reading and writing of our own, not the program's.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Exit::Unavailable, format!("input or output failed: {error}"))
    }
}

/// What the operating system would not do for us.
pub(crate) fn system(what: &str, error: impl fmt::Display) -> Failure {
    Failure::new(Exit::NotExecutable, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_code() {
        for exit in [
            Exit::Usage,
            Exit::Conflict,
            Exit::Unavailable,
            Exit::Busy,
            Exit::Lost,
            Exit::NotExecutable,
            Exit::NotFound,
        ] {
            assert!(STATUS.contains(&format!("\n  {} ", exit.code())), "{exit:?}");
        }
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(Exit::Signal(15).code(), 143);
    }
}
