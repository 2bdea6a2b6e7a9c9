#![doc = include_str!("../README.md")]

mod fault;
mod home;
mod live;
mod names;
mod office;
mod place;
mod records;
mod slip;
mod time;
mod url;
#[cfg_attr(not(target_os = "linux"), path = "unwatched.rs")]
mod watch;

pub use records::{Directory, INFO, file};
