#![doc = include_str!("../README.md")]
#![allow(dead_code, reason = "the store is written next")]

mod ask;
mod fault;
mod inbox;
mod link;
mod names;
mod pack;
mod reply;
mod script;
mod tls;
mod url;
