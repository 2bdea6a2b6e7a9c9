#![doc = include_str!("../README.md")]

mod ask;
mod bell;
mod checks;
mod driver;
mod fault;
#[cfg(test)]
mod fuzzed;
mod lane;
mod leave;
mod names;
mod note;
mod own;
mod pass;
mod plan;
mod probe;
mod renew;
mod session;
mod sessions;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod turn;
mod unanswered;
mod url;
mod view;

pub use store::{INFO, ZooKeeper};
