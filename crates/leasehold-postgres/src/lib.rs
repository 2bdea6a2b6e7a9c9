#![doc = include_str!("../README.md")]

mod ask;
mod fault;
mod lease;
mod link;
mod names;
mod proof;
mod renewal;
mod reply;
mod session;
mod settings;
mod sql;
mod store;
#[cfg(test)]
mod tests;
mod tls;
mod url;

pub use lease::INFO;
pub use session::{ADVISORY, ROWLOCK};
pub use sql::init_sql;
pub use store::Postgres;
