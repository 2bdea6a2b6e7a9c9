#![doc = include_str!("../README.md")]
#![allow(dead_code, reason = "the store is written next")]

mod fault;
mod inbox;
mod link;
mod script;
mod tls;
mod url;
