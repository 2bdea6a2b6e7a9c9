//! Stub.
pub use leasehold_core::*;
