//! Real servers on loopback for the tests of stores, and a proxy that breaks connections.
//!
//! Everything here is stopped when it is dropped, when the test panics, and even when the test's process is
//! killed. Nothing is skipped: a program that is missing fails the test and names the way to get it.

mod clock;
pub mod consul;
mod disk;
pub mod etcd;
mod fetched;
mod http;
pub mod mariadb;
pub mod memcached;
mod peers;
mod place;
mod port;
pub mod postgres;
mod power;
mod process;
mod proxy;
pub mod redis;
pub mod zookeeper;

pub use port::free_port;
pub use power::PowerDisk;
pub use process::{Process, wait_until};
pub use proxy::{Mode, Proxy};
