//! The real client runtime under seeded faults, in simulated time.
//!
//! A schedule is a few clients with workers that acquire, hold, change, hand over and give back at random, on one
//! store in memory, each behind a bad network of its own and with a clock of its own; and a director who cuts, stops,
//! kills, closes and evicts. It runs on one thread and a paused clock: half a minute of it takes a few milliseconds.
//!
//! What is checked, all the time: nobody believes to hold what the store has given to others; tokens rise; order is
//! kept; waits end in time; a latch opens at zero and not before. At the end: nobody is left waiting, and nothing is left
//! at the store. It does not check stores: those have the conformance suite.

mod attempts;
mod beliefs;
mod cancel;
mod coverage;
mod director;
mod held;
mod schedule;
mod setup;
mod slot;
mod spy;
mod trace;
mod weather;
mod worker;
mod world;

pub use coverage::Coverage;
pub use schedule::{Verdict, run};
pub use setup::{Act, Leases, Rates, Setup, Trouble};
