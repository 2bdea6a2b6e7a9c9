//! What happens to holders, waiters and tokens when servers fail: real clusters, the public API.
//!
//! Every case ends with the same questions: was there a second grant beside a valid guard, did tokens rise, was a loss
//! noticed by the deadline, was the next one served soon, and is anything left behind?
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
#![allow(clippy::future_not_send, reason = "a test waits for them where it is")]

mod administrators;
mod cuts;
mod freezing;
mod leaders;
mod scene;
