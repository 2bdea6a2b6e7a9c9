//! One file per subcommand.

pub(crate) mod generate;
pub(crate) mod latch;
pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod store;
