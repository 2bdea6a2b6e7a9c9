//! The real client runtime under seeded faults, in simulated time.
//!
//! A schedule is a few clients with workers that acquire, hold, change, hand over and give back at random, on one
//! store in memory, each behind a bad network of its own and with a clock of its own; and a director who cuts, stops,
//! kills, closes and evicts. It runs on one thread and a paused clock: half a minute of it takes a few milliseconds.
//!
//! What is checked, all the time: nobody believes to hold what the store has given to others; tokens rise; order is
//! kept; waits end in time; a latch opens at zero and not before; no setting and no count of a latch takes effect twice;
//! no claim is served for an attempt that is over and forgotten; no claim is kept for a future that nobody polls; no look
//! extends a fixed lease; no stranger's message makes a holder. At the end: nobody is left waiting, and nothing is left at
//! the store. It does not check stores: those have the conformance suite.

mod attempts;
mod beliefs;
mod cancel;
mod copies;
mod coverage;
mod director;
mod held;
#[cfg(feature = "mutants")]
pub mod planted;
mod quorum;
mod rounds;
mod schedule;
mod sender;
mod setup;
mod slot;
mod spy;
mod trace;
mod weather;
mod worker;
mod world;

pub use coverage::Coverage;
pub use quorum::{QuorumCoverage, QuorumVerdict, run_quorum};
pub use schedule::{Verdict, run};
pub use setup::{Act, Leases, Rates, Setup, Trouble};
