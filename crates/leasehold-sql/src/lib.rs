#![doc = include_str!("../README.md")]

mod book;
mod database;
mod line;
mod pinned;

pub use database::{Connection, Database, Held, Sharing};
pub use pinned::{CAPABILITIES, Carries, Pinned};
