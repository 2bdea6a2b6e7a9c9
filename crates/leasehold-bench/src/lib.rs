//! Leasehold beside what a careful engineer would write by hand, in the same run on the same machine.
//!
//! A figure in pairs per second says more about the machine than about the library, so every figure here
//! has a peer that does the least that the job could cost, measured in turns with it, and what is reported
//! is the ratio. There are no limits to pass: a slow machine is not a bug.
//!
//! - [`command`]: the command line of a bench.
//! - [`contest`]: what is measured, in which order, and how rounds become figures.
//! - [`handover`]: from a release to the next holder's hands.
//! - [`round`]: many tasks that acquire and release for a while.
//! - [`subject`]: the ways to lock that compete.
//! - [`report`]: the table and the JSON.

pub mod command;
pub mod contest;
pub mod handover;
pub mod report;
pub mod round;
pub mod subject;
