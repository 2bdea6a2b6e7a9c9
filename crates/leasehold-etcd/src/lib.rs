#![doc = include_str!("../README.md")]

mod amending;
mod checks;
mod claiming;
mod deciding;
mod format;
#[cfg(test)]
mod fuzzed;
mod guarded;
mod inbox;
mod labels;
mod names;
mod plan;
#[doc(hidden)]
pub mod raw;
mod releasing;
mod renewing;
mod session;
mod state;
mod store;
mod url;
mod viewing;
mod wire;
mod words;

pub use guarded::Write;
pub use store::{Etcd, INFO};
