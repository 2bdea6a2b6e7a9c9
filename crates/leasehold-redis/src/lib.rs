#![doc = include_str!("../README.md")]

mod ask;
mod fault;
#[cfg(test)]
mod fuzzed;
mod inbox;
mod link;
mod names;
mod pack;
mod redlock;
mod reply;
mod script;
mod secret;
mod seen;
mod settings;
mod store;
mod tls;
mod url;

pub use redlock::redlock;
pub use store::{INFO, Redis};
