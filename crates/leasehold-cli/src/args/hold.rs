//! What `run` and `elect` take: they differ in what is held, not in how a program is run under it.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use leasehold::Key;

use super::key;
use crate::duration;

/// Arguments of `run`.
///
/// Without --shared or --permits the lock is exclusive, and the same lock as a mutex of the library.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Share the lock with others who say --shared
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Take N of M permits; everybody must name the same M
    #[arg(long, value_name = "N/M")]
    pub(crate) permits: Option<String>,
    /// Refuse further starts until this long after the start, no matter how soon the program ends;
    /// does not wait, and ends the program after --max-hold, default 1h
    #[arg(
        long,
        value_name = "DUR",
        value_parser = duration::parse_positive,
        conflicts_with_all = ["wait", "fixed", "shared", "permits"]
    )]
    pub(crate) at_least: Option<Duration>,
    /// Never renew: the program is ended when the lease is over
    #[arg(long)]
    pub(crate) fixed: bool,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// Arguments of `elect`.
///
/// An election is a lock whose holder publishes a value: `show` and `watch` tell everybody who leads.
#[derive(Debug, Args)]
pub(crate) struct ElectArgs {
    /// What to publish while leading, such as an address; others see it with `show`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) value: String,
    /// After losing the leadership campaign again, instead of exiting with 79
    #[arg(long)]
    pub(crate) again: bool,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// How the lock is got and kept.
#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// Wait at most this long (10s, 1h 30m), for the lock and for a store in a failover; default: for ever
    #[arg(long, value_name = "DUR", value_parser = duration::parse, conflicts_with = "try_once")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: exit 75 when somebody else holds
    #[arg(long = "try")]
    pub(crate) try_once: bool,
    /// How long the hold outlives a crash of the machine; renewed every third of it
    #[arg(long, value_name = "DUR", value_parser = duration::parse_positive, default_value = "30s")]
    pub(crate) lease: Duration,
    /// End the program when it has held for this long
    #[arg(long, value_name = "DUR", value_parser = duration::parse_positive)]
    pub(crate) max_hold: Option<Duration>,
    /// When others ask for it (`release --ask`), end the program and give it back
    #[arg(long = "yield")]
    pub(crate) give_way: bool,
    /// On loss or --yield, the time between SIGTERM and SIGKILL; never past the end of the lease
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "5s")]
    pub(crate) grace: Duration,
    /// What others see as the holder; default: host and process id
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Say on stderr what happens, one JSON object per line; stdout is the program's
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is to be done while holding.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// The name of the lock
    #[arg(value_parser = key)]
    pub(crate) key: Key,
    /// The program and its arguments; no shell is involved
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
