#![doc = include_str!("../README.md")]
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "what is heard, only inotify hears"))]

mod fault;
mod home;
#[cfg(target_os = "linux")]
mod inotify;
mod live;
mod names;
mod office;
mod place;
mod records;
mod slip;
mod time;
mod url;
mod watch;

pub use records::{Directory, INFO, file};
