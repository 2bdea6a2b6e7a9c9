#![doc = include_str!("../README.md")]

mod book;
mod crowd;
mod database;
mod line;
mod mode;
mod numbers;
mod pinned;
mod queue;
mod view;

pub use crowd::{Caller, Crowd};
pub use database::{Connection, Database, Held, Sharing};
pub use mode::Mode;
pub use numbers::TOO_FAR_AHEAD;
pub use pinned::{CAPABILITIES, Carries, Pinned};
pub use queue::{First, Queues};
