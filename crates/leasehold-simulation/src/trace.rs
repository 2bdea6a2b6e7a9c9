//! What happened in one schedule, cheap enough to be written down always.

use std::fmt;
use std::time::Duration;

use crate::setup::Spot;

/// Who did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Store,
    Director,
    Worker(usize, usize),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store => f.write_str("  store"),
            Self::Director => f.write_str("director"),
            Self::Worker(client, worker) => write!(f, "c{client}.{worker}"),
        }
    }
}

/// A line of the story. The numbers mean what the words say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) who: Who,
    pub(crate) what: &'static str,
    pub(crate) spot: Option<Spot>,
    pub(crate) attempt: u64,
    pub(crate) number: u64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spot = self.spot.map_or("", Spot::name);
        let (at, who, what) = (self.at.as_secs_f64(), self.who.to_string(), self.what);
        write!(f, "{at:9.4}  {who:<9} {what:<28} {spot:<8}")?;
        if self.attempt != u64::MAX {
            write!(f, " #{:<4}", self.attempt)?;
        }
        write!(f, " {}", self.number)
    }
}
