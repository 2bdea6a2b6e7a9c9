#![doc = include_str!("../README.md")]

mod checks;
mod heirs;
mod http;
mod kv;
mod listen;
mod looks;
mod loose;
mod names;
mod pool;
#[doc(hidden)]
pub mod raw;
mod records;
mod session;
mod store;
mod url;

pub use store::{Consul, INFO};
