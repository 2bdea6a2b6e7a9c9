//! The way to the servers: gRPC over one HTTP/2 connection at a time, with nothing generated.
//!
//! A lock needs nine calls and a dozen messages. Written down here they need no `protoc`, no build script and no
//! general client; and when a call fails we know whether its bytes can have left this process.

mod connection;
mod crowd;
mod fault;
mod grpc;
mod link;
pub(crate) mod message;

pub(crate) use connection::{Connection, header};
pub(crate) use fault::Fault;
pub(crate) use grpc::Incoming;
pub(crate) use link::Link;
