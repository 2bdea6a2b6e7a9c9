//! The store when things go wrong: what docs/safety.md promises, on real servers.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod clocks;
mod common;
mod lasting;
mod limits;
mod scene;
mod standby;
