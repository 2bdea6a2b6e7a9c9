#![doc = include_str!("../README.md")]

mod case;
mod cases;
mod differential;
mod fixture;
pub mod fuzz;
mod gate;
mod harness;
pub mod history;
mod listener;
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants;
mod panics;
mod pool;
pub mod power;
mod scale;
mod scene;
mod spy;
pub mod trouble;
mod verdict;
mod victim;
mod views;
mod waiting;

pub use fixture::{AtGrant, Fixture, Hook, RawState};
pub use gate::{Gate, Passing};
pub use harness::{run, run_groups};
pub use pool::{Lent, Pool};
pub use scale::Scale;
pub use spy::{Call, Counts, Spy};
pub use victim::{Killed, kill_one_that_holds, victim};
