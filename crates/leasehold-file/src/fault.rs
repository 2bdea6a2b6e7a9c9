//! What the operating system refused, in our words.

use std::io;
use std::path::Path;

use leasehold_core::{Error, ErrorKind};
use rustix::io::Errno;

/// What could not be done in this directory, with nothing changed.
pub(crate) fn refused(path: &Path, what: &str, cause: impl Into<io::Error>) -> Error {
    let cause = cause.into();
    let (kind, hint) = match Errno::from_io_error(&cause) {
        Some(Errno::ACCESS | Errno::PERM) => {
            (ErrorKind::Denied, "it is not ours to use: check owner and mode")
        }
        Some(Errno::LOOP | Errno::NOTDIR | Errno::ISDIR) => {
            (ErrorKind::Denied, "a link or something else is where a file of ours should be: remove it")
        }
        Some(Errno::ROFS) => {
            (ErrorKind::Unavailable, "the file system is read-only: choose another directory")
        }
        Some(Errno::NOSPC | Errno::DQUOT) => (ErrorKind::Unavailable, "no space is left: free some"),
        Some(Errno::MFILE | Errno::NFILE) => {
            (ErrorKind::Unavailable, "too many files are open: raise the limit")
        }
        _ => (ErrorKind::Unavailable, "try again"),
    };
    Error::new(kind, format!("cannot {what} in {}: {hint}", path.display())).because(cause).at("file")
}

/// Something happened, and it may not outlive a power cut.
pub(crate) fn unknown(path: &Path, cause: impl Into<io::Error>) -> Error {
    let message = format!("nobody knows whether {} has it for good: ask again", path.display());
    Error::new(ErrorKind::Indeterminate, message).because(cause.into()).at("file")
}
