//! For stores that keep their locks in files of this machine: which file system a directory is on, and which clock the
//! times in the files are by.

mod boot;
mod file_system;

pub use boot::boot_clock_name;
pub use file_system::{FileSystem, Network};
