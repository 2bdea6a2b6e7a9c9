#![doc = include_str!("../README.md")]

mod clerk;
mod epoch;
mod fault;
mod fence;
mod format;
mod job;
mod ledger;
mod linked;
mod location;
mod office;
mod place;
mod settings;
mod step;
mod store;
mod wake;

pub use location::default_path;
pub use settings::{Settings, SyncMode};
pub use store::{INFO, Sqlite};
