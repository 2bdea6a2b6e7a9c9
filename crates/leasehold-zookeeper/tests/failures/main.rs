//! What may happen to servers and to the ways between them, on real ones.
//!
//! In all cases: two guards are never valid at the same time, tokens rise, a loss is heard of by the deadline, and in
//! the end nothing is left on the servers.

mod ensembles;
mod nodes;
mod scene;
mod ways;
