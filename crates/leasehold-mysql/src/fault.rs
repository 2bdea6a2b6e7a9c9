//! What it means when the database refuses, fails or says nothing.

use leasehold_core::{Error, ErrorKind};
use mysql_async::{DriverError, Error as Driver, IoError};

/// What a server says that takes no writes, for ever or during a switchover.
const READ_ONLY: &str = "the server is read-only: name the primary";

/// Why a step did not come to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It was undone; the caller is told why.
    Failed(Error),
    /// It was undone because others were in the way: try again.
    Again(Driver),
    /// More of the lock must be known to decide.
    Blind,
    /// It may or may not have happened.
    Unknown(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Stop {
    /// What an error means before anything was committed: it did not happen.
    pub(crate) fn before(error: Driver) -> Self {
        match code(&error) {
            // A deadlock, or a row that was not to be had: in time, or at once.
            Some(1213 | 1205 | 3572) => Self::Again(error),
            _ => Self::Failed(refusal(error)),
        }
    }

    /// What an error means once the commit was sent.
    pub(crate) fn after(error: Driver) -> Self {
        match code(&error) {
            Some(1213 | 1205 | 3572) => Self::Again(error),
            // Refused before the commit was reached: no space, no such table, read-only, a right, the binary log's format.
            Some(1021 | 1114 | 1146 | 1290 | 1142 | 1836 | 1406 | 1665) => Self::Failed(refusal(error)),
            _ => Self::Unknown(error.to_string()),
        }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Again(cause) => {
                let message = "others were in the way until time was over: try again";
                Error::new(ErrorKind::Unavailable, message).at("mysql").because(plain(cause))
            }
            Self::Blind => Error::new(ErrorKind::Protocol, "the queue is not as its head says").at("mysql"),
            Self::Unknown(cause) => {
                let message = "the connection broke before the answer: it may have happened";
                Error::new(ErrorKind::Indeterminate, message).at("mysql").because(cause)
            }
        }
    }
}

/// An error that the database answered with, or that came before anything was committed.
pub(crate) fn refusal(cause: Driver) -> Error {
    let (kind, message) = match code(&cause) {
        Some(1045 | 1044 | 1698) => (
            ErrorKind::Denied,
            "the server refused user, password or database: put the right ones into the URL",
        ),
        Some(1142 | 1143 | 1227 | 1370) => (
            ErrorKind::Denied,
            "this user lacks a right: give it the rights that the store's documentation lists",
        ),
        Some(1049) => (ErrorKind::Invalid, "there is no such database: check the URL"),
        Some(1040 | 1203) => {
            (ErrorKind::Unavailable, "the server has no connection left: raise max_connections")
        }
        Some(1021 | 1114) => (ErrorKind::Unavailable, "the database's disk is full: free some space"),
        Some(1290 | 1836) => (ErrorKind::Unavailable, READ_ONLY),
        Some(1665) => (
            ErrorKind::Unavailable,
            "binlog_format is STATEMENT, and the server refuses to write locks: set it to ROW or MIXED",
        ),
        Some(1146 | 1932 | 4091) => {
            (ErrorKind::Unavailable, "the lock tables are gone: they are made again if we may")
        }
        Some(1064) => (
            ErrorKind::Unsupported,
            "the server does not know our statements: use MariaDB 10.6, MySQL 8, or newer",
        ),
        Some(_) => (ErrorKind::Unavailable, "the server refused"),
        None => (ErrorKind::Unavailable, "the connection broke: nothing was committed"),
    };
    Error::new(kind, message).at("mysql").because(plain(cause)).transient_if(message == READ_ONLY)
}

/// The cause without the driver's words around it, which say twice that it is about input or output.
fn plain(cause: Driver) -> Box<dyn std::error::Error + Send + Sync> {
    match cause {
        Driver::Io(IoError::Io(cause)) => cause.into(),
        Driver::Io(cause) => cause.into(),
        cause => cause.into(),
    }
}

/// Why there is no connection to `place`.
pub(crate) fn connecting(cause: Driver, place: &str) -> Error {
    let (kind, message) = match &cause {
        Driver::Driver(DriverError::NoClientSslFlagFromServer) => (
            ErrorKind::Denied,
            "the server has no TLS: set it up there, or write ssl-mode=disabled if the network can be trusted",
        ),
        cause if is_certificate(cause) => (
            ErrorKind::Denied,
            "the certificates do not match: check ssl-ca, ssl-cert, ssl-key and the host's name",
        ),
        Driver::Server(_) => {
            let error = refusal(cause);
            let message = error.to_string();
            let message = message.strip_prefix("mysql: ").unwrap_or(&message).to_owned();
            let is_transient = error.is_transient();
            return Error::new(error.kind(), format!("{place}: {message}"))
                .at("mysql")
                .transient_if(is_transient);
        }
        _ => (ErrorKind::Unavailable, "cannot connect: check that the server runs and can be reached"),
    };
    Error::new(kind, format!("{place}: {message}")).at("mysql").because(plain(cause))
}

/// Whether TLS refused: this side or the other.
fn is_certificate(error: &Driver) -> bool {
    match error {
        Driver::Io(IoError::Tls(_)) => true,
        Driver::Io(IoError::Io(cause)) => cause.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        _ => false,
    }
}

/// Whether others were in the way: a deadlock, or a row that was not to be had.
pub(crate) fn is_busy(error: &Driver) -> bool {
    matches!(code(error), Some(1213 | 1205 | 3572))
}

/// Whether something was null that may not be.
pub(crate) fn is_null(error: &Driver) -> bool {
    code(error) == Some(1048)
}

/// Whether this user lacks the right.
pub(crate) fn is_denied(error: &Driver) -> bool {
    matches!(code(error), Some(1142 | 1143))
}

/// Whether the tables are not there.
pub(crate) fn is_missing(error: &Driver) -> bool {
    matches!(code(error), Some(1146 | 1932 | 4091))
}

fn code(error: &Driver) -> Option<u16> {
    match error {
        Driver::Server(said) => Some(said.code),
        _ => None,
    }
}
