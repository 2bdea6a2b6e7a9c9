//! The command as its users meet it: the real binary, a fresh store for every test.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails; clippy does not know helpers from code"
)]

mod ask;
mod container;
mod contention;
mod database;
mod dead_runners;
mod elect;
mod failovers;
mod guardian;
mod job;
mod latch;
mod look;
mod loss;
mod nested;
mod outages;
mod pty;
mod run;
mod secrets;
mod servers;
mod signals;
mod status;
mod stores;
mod terminal;
mod threads;
mod traced;
mod util;
mod waiters;
