#![doc = include_str!("../README.md")]

mod batch;
mod busy;
mod crowd;
mod dialect;
mod fault;
mod idle;
mod lease;
mod link;
mod many;
mod poll;
mod rows;
mod session;
mod settings;
mod sketch;
mod sql;
mod step;
mod store;
mod swift;
mod tls;
mod url;

pub use lease::INFO;
pub use session::{ADVISORY, ROWLOCK};
pub use sql::init_sql;
pub use store::Mysql;
