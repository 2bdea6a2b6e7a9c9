#![doc = include_str!("../README.md")]

mod batch;
mod fault;
mod link;
mod poll;
mod rows;
mod sql;
mod step;
mod store;
mod url;

pub use sql::init_sql;
pub use store::{INFO, Mysql};
