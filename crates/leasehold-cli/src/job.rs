//! The program that runs under the lock, with everything it starts: a process group.

pub(crate) mod guardian;
pub(crate) mod locks;
pub(crate) mod margin;
pub(crate) mod process;
pub(crate) mod signals;
pub(crate) mod supervise;
pub(crate) mod table;
pub(crate) mod terminal;
