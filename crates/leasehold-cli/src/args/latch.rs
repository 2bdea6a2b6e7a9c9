//! What `latch` takes: a verb and the name of the latch.

use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold::Key;

use super::key;
use crate::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum LatchVerb {
    /// Set the count, if the latch is open; exit 75 when it is set already
    Set {
        #[command(flatten)]
        latch: LatchArgs,
        /// How many times it must be counted down
        #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: u64,
        /// Open by itself after this time, counted from now; default: never
        #[arg(long, value_name = "DUR", value_parser = duration::parse_positive)]
        lives_for: Option<Duration>,
    },
    /// Count down; an open latch stays open
    Down {
        #[command(flatten)]
        latch: LatchArgs,
        /// By how many
        #[arg(value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
        count: u64,
    },
    /// Wait until the latch is open; exit 79 when it is deleted meanwhile
    Wait {
        #[command(flatten)]
        latch: LatchArgs,
        /// Wait at most this long (10s, 1h 30m), then exit 75; default: for ever
        #[arg(long, value_name = "DUR", value_parser = duration::parse)]
        wait: Option<Duration>,
        /// Wait until the latch has been set, then until it is open; without this, a latch that is not set is open
        #[arg(long)]
        must_exist: bool,
    },
    /// Show what is left of the count
    Show {
        #[command(flatten)]
        latch: LatchArgs,
    },
    /// Delete the latch: those who wait for it end with 79
    Delete {
        #[command(flatten)]
        latch: LatchArgs,
    },
}

/// What every verb takes.
#[derive(Debug, Args)]
pub(crate) struct LatchArgs {
    /// The name of the latch
    #[arg(value_parser = key)]
    pub(crate) key: Key,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
