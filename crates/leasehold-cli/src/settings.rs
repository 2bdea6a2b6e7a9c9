//! What was typed, checked and in the shape that the work wants it in.

use std::ffi::OsString;
use std::time::Duration;

use leasehold::{Key, Options, WHOLE};

use crate::args::RunArgs;
use crate::exit::{Exit, Failure};

/// What `run` is to do.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    pub(crate) lease: Duration,
    pub(crate) fixed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) label: Option<String>,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// Which lock is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
    Permits { wanted: u64, of: u64 },
}

/// How long to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    AtMost(Duration),
    Not,
}

impl Run {
    /// Checks what clap cannot.
    pub(crate) fn new(args: RunArgs) -> Result<Self, Failure> {
        let mode = match (args.shared, &args.permits) {
            (true, _) => Mode::Shared,
            (false, Some(permits)) => parse_permits(permits)?,
            (false, None) => Mode::Exclusive,
        };
        let wait = match (args.try_once, args.wait) {
            (true, _) => Wait::Not,
            (false, Some(limit)) => Wait::AtMost(limit),
            (false, None) => Wait::Forever,
        };
        let mut command = args.command.into_iter();
        // clap has seen to it that there is one.
        let program = command.next().unwrap_or_default();
        Ok(Self {
            key: args.key,
            mode,
            wait,
            lease: args.lease,
            fixed: args.fixed,
            max_hold: args.max_hold,
            grace: args.grace,
            label: args.label,
            program,
            arguments: command.collect(),
        })
    }

    /// The same for the library.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new();
        options = if self.fixed { options.fixed(self.lease) } else { options.lease(self.lease) };
        if let Some(limit) = self.max_hold {
            options = options.max_hold(limit);
        }
        if let Some(label) = &self.label {
            options = options.label(label);
        }
        options
    }
}

fn parse_permits(text: &str) -> Result<Mode, Failure> {
    let numbers = text.split_once('/').and_then(|(n, m)| Some((n.parse().ok()?, m.parse().ok()?)));
    match numbers {
        None => {
            Err(usage(format!("--permits \"{}\" is not of the form N/M, such as 1/3", text.escape_debug())))
        }
        Some((_, of)) if of == 0 || of > WHOLE => {
            Err(usage(format!("--permits {text}: there must be 1 to {WHOLE} permits")))
        }
        Some((0, _)) => Err(usage(format!("--permits {text}: take at least 1"))),
        Some((wanted, of)) if wanted > of => {
            Err(usage(format!("--permits {text}: {wanted} of {of} can never be had, take at most {of}")))
        }
        Some((wanted, of)) => Ok(Mode::Permits { wanted, of }),
    }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_some_of_a_total() {
        assert_eq!(parse_permits("1/3").unwrap(), Mode::Permits { wanted: 1, of: 3 });
        assert_eq!(parse_permits("3/3").unwrap(), Mode::Permits { wanted: 3, of: 3 });
        for text in ["4/3", "0/3", "1/0", "1", "/", "a/b", "1/2/3", "-1/3", "", "1/99999999999999999999"] {
            assert_eq!(parse_permits(text).unwrap_err().exit, Exit::Usage, "{text}");
        }
    }
}
