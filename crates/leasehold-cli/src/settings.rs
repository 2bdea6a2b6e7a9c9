//! What was typed, checked and in the shape that the work wants it in.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use leasehold::{Key, Options, Semaphore};

use crate::args::{ElectArgs, HoldArgs, RunArgs, WorkArgs};
use crate::exit::{Exit, Failure};

/// How long a job may run unless `--max-hold` or a longer `--at-least` says otherwise.
const AT_MOST: Duration = Duration::from_secs(3600);

/// What `run` or `elect` is to do.
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
    pub(crate) on_ask: OnAsk,
    pub(crate) on_loss: OnLoss,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// Which lock is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
    Permits {
        wanted: u64,
        of: u64,
    },
    /// Exclusive, and not started again for a while after the start.
    Job {
        at_least: Duration,
    },
    /// Exclusive, publishing a value.
    Leader {
        value: String,
    },
}

/// How long to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    AtMost(Duration),
    Not,
}

impl Wait {
    /// What is left of it for what follows.
    pub(crate) fn since(self, start: Instant) -> Self {
        match self {
            Self::AtMost(limit) => Self::AtMost(limit.saturating_sub(start.elapsed())),
            other => other,
        }
    }

    /// Whether there is time for another attempt.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::Forever => false,
            Self::AtMost(left) => left.is_zero(),
            Self::Not => true,
        }
    }

    /// As a length of time.
    pub(crate) fn as_duration(self) -> Duration {
        match self {
            Self::Forever => Duration::MAX,
            Self::AtMost(limit) => limit,
            Self::Not => Duration::ZERO,
        }
    }
}

/// What follows when somebody asks for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAsk {
    Tell,
    GiveWay,
}

/// What follows when the program was ended because the lock was lost or given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnLoss {
    Exit,
    Again,
}

impl Run {
    /// What `run` is to do: checks what clap cannot.
    pub(crate) fn new(args: RunArgs) -> Result<Self, Failure> {
        let mode = match (args.at_least, args.shared, &args.permits) {
            (Some(at_least), ..) => Mode::Job { at_least },
            (None, true, _) => Mode::Shared,
            (None, false, Some(permits)) => parse_permits(permits)?,
            (None, false, None) => Mode::Exclusive,
        };
        let mut run = Self::plain(mode, args.hold, args.work);
        run.fixed = args.fixed;
        if let Some(at_least) = args.at_least {
            run.max_hold.get_or_insert(AT_MOST.max(at_least));
            run.wait = Wait::Not;
        }
        Ok(run)
    }

    /// What `elect` is to do.
    pub(crate) fn elect(args: ElectArgs) -> Self {
        let mut run = Self::plain(Mode::Leader { value: args.value }, args.hold, args.work);
        run.on_loss = if args.again { OnLoss::Again } else { OnLoss::Exit };
        run
    }

    fn plain(mode: Mode, hold: HoldArgs, work: WorkArgs) -> Self {
        let wait = match (hold.try_once, hold.wait) {
            (true, _) => Wait::Not,
            (false, Some(limit)) => Wait::AtMost(limit),
            (false, None) => Wait::Forever,
        };
        let mut command = work.command.into_iter();
        Self {
            key: work.key,
            mode,
            wait,
            lease: hold.lease,
            fixed: false,
            max_hold: hold.max_hold,
            grace: hold.grace,
            label: hold.label,
            on_ask: if hold.give_way { OnAsk::GiveWay } else { OnAsk::Tell },
            on_loss: OnLoss::Exit,
            // clap has seen to it that there is one.
            program: command.next().unwrap_or_default(),
            arguments: command.collect(),
        }
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
        Some((_, of)) if of == 0 || of > Semaphore::MAX_PERMITS => {
            Err(usage(format!("--permits {text}: a semaphore has 1 to {} permits", Semaphore::MAX_PERMITS)))
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
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn a_job_may_run_for_an_hour_or_its_pause_unless_limited() {
        let limit = |words: &str| {
            let line = words.split_whitespace().chain(["k", "--", "true"]);
            let Command::Run(args) = Cli::try_parse_from(line).unwrap().command else { panic!() };
            let run = Run::new(args).unwrap();
            assert_eq!(run.lease, Duration::from_secs(30), "{words}");
            run.max_hold.unwrap().as_secs()
        };
        assert_eq!(limit("leasehold run --at-least 1m"), 3_600);
        assert_eq!(limit("leasehold run --at-least 1d"), 86_400);
        assert_eq!(limit("leasehold run --at-least 1d --max-hold 1m"), 60);
    }

    #[test]
    fn permits_are_some_of_a_total() {
        assert_eq!(parse_permits("1/3").unwrap(), Mode::Permits { wanted: 1, of: 3 });
        assert_eq!(parse_permits("3/3").unwrap(), Mode::Permits { wanted: 3, of: 3 });
        for text in ["4/3", "0/3", "1/0", "1", "/", "a/b", "1/2/3", "-1/3", "", "1/99999999999999999999"] {
            assert_eq!(parse_permits(text).unwrap_err().exit, Exit::Usage, "{text}");
        }
    }
}
