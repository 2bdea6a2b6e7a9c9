#![doc = include_str!("../README.md")]

mod ask;
mod fault;
mod link;
mod names;
mod reply;
mod sql;
mod store;
#[cfg(test)]
mod tests;
mod tls;
mod url;

pub use sql::init_sql;
pub use store::{INFO, Postgres};
