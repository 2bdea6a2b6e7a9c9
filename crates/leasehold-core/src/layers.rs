//! Stores around stores: each adds one thing and passes everything else on.
//!
//! A layer is a [`Store`](crate::Store), so layers stack in any order and clients cannot tell the difference.

mod faults;
#[cfg(feature = "metrics")]
mod metrics;
mod namespace;
mod trace;
mod words;

pub use faults::{Call, Fault, Faults, Hint, Injected, Odds, Reply, Request, Verb, WakeFault};
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use namespace::Namespace;
pub use trace::Trace;
