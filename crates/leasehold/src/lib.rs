//! Distributed locks on the store you already run.
//!
//! One URL picks the store; the same API, semantics and guarantees hold on all of them.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! let client = leasehold::connect("memory://").await?;
//! let guard = client.mutex("orders/42").acquire().await?; // waits its turn; renewed while held
//! println!("the token {} fences stale writers out", guard.token());
//! assert!(client.mutex("orders/42").try_acquire().await?.is_none());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! | URL | store | feature |
//! |---|---|---|
//! | `memory://` | this client's own memory, for tests | always |
//! | `memory://name` | memory that the clients of one process share | always |
//! | `sqlite:`, `sqlite:///path/locks.db` | a file shared by the processes of one machine | `sqlite` |
//!
//! A lock protects as long as its guard [is valid](Guard::is_valid). No lock can stop a paused process from
//! writing after its lease is over: hand [`Guard::token`] to whatever you write to, and let that refuse
//! smaller ones.
//!
//! Everything but [`connect()`], [`open()`] and [`redact()`] comes from `leasehold-core`, which stores are written
//! against.

mod connect;
mod redact;

pub use connect::{connect, open};
pub use leasehold_core::*;
pub use redact::redact;

/// The SQLite store and its settings.
#[cfg(feature = "sqlite")]
pub use leasehold_sqlite as sqlite;

/// Compiles the examples of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
