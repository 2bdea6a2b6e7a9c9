#![doc = include_str!("../README.md")]

mod link;
mod names;
mod protocol;
#[doc(hidden)]
pub mod raw;
mod records;
mod time;
mod url;

pub use records::{INFO, Memcached, memcached};
