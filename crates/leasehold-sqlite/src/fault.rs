//! What SQLite's errors mean for a caller.

use leasehold_core::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// Why a step did not happen.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another process has the file: nothing happened, try again.
    Busy,
    /// It must be committed durably: nothing happened, do it again in that mode.
    NeedsSync,
    /// The file was deleted or replaced: nothing happened, open it again.
    Moved,
    /// It was undone; the caller is told why.
    Failed(Error),
    /// The commit itself failed: it may or may not survive.
    Unknown(String),
}

impl Stop {
    /// The same for another request of the same transaction.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Busy => Self::Busy,
            Self::NeedsSync => Self::NeedsSync,
            Self::Moved => Self::Moved,
            Self::Failed(error) => Self::Failed(Error::new(error.kind(), error.to_string())),
            Self::Unknown(cause) => Self::Unknown(cause.clone()),
        }
    }

    /// As it is told to a caller, when nobody tries again.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Unknown(cause) => {
                let message = "the disk failed during a commit, ask again for how the claim stands";
                Error::new(ErrorKind::Indeterminate, message).at("sqlite").because(cause)
            }
            Self::Moved => {
                let message = "the lock file was deleted or replaced while in use: try again on the new one";
                Error::new(ErrorKind::Unavailable, message).at("sqlite")
            }
            Self::Busy | Self::NeedsSync => {
                let message =
                    "other processes kept the file busy: try again, or look for one that is stopped";
                Error::new(ErrorKind::Unavailable, message).at("sqlite")
            }
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed,
            ) => Self::Busy,
            _ => Self::Failed(explain(error)),
        }
    }
}

/// Turns an error of SQLite into one that says what to do.
pub(crate) fn explain(error: rusqlite::Error) -> Error {
    let (kind, message) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => (ErrorKind::Unavailable, "the disk is full: free some space"),
        Some(
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied,
        ) => (ErrorKind::Denied, "the lock file cannot be written: check the rights of it and its directory"),
        Some(ErrorCode::CannotOpen) => {
            (ErrorKind::Denied, "the lock file cannot be opened: check the rights of it and its directory")
        }
        Some(ErrorCode::NotADatabase) => {
            (ErrorKind::Conflict, "the file is not a database: choose another path for the locks")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            (ErrorKind::Protocol, "the lock file is damaged: stop all who use it and move it away")
        }
        Some(ErrorCode::SystemIoFailure) => {
            (ErrorKind::Unavailable, "the disk failed: check it and its file system")
        }
        Some(ErrorCode::OutOfMemory) => (ErrorKind::Unavailable, "out of memory"),
        _ => (ErrorKind::Protocol, "the lock file has contents that this version does not understand"),
    };
    Error::new(kind, message).at("sqlite").because(error)
}
