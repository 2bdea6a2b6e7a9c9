//! placeholder
pub mod format;
