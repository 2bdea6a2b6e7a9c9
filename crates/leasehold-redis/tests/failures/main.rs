//! What happens to holders, waiters and tokens when a server fails: real servers, the public API.
//!
//! Every case ends with the same questions: was there a second grant that docs/safety.md does not admit, did tokens
//! rise, was a loss noticed by the deadline, was the next one served soon, and is anything left behind?

mod acknowledged;
mod answers;
mod clocks;
mod contents;
mod crashes;
mod failovers;
mod memory;
mod quorum;
mod scene;
mod shards;
mod slots;
