//! What the driver's errors mean to us.

use leasehold_core::{Error, ErrorKind};
use zookeeper_client::{Error as Fault, MultiWriteError};

/// An error as users see it. A request that failed for any other reason than a refusal may have happened.
pub(crate) fn said(fault: Fault) -> Error {
    let (kind, message) = match fault {
        Fault::NoAuth => {
            (ErrorKind::Denied, "the server refuses: give us rights on the lock's nodes and their parents")
        }
        Fault::AuthFailed => (ErrorKind::Denied, "the server refuses our user or password"),
        Fault::QuotaExceeded => (ErrorKind::Unavailable, "a quota of the server is used up: raise it"),
        Fault::Throttled => (ErrorKind::Unavailable, "the server is too busy: try again later"),
        Fault::NotReadOnly => (ErrorKind::Unavailable, "the server has lost the others: it can only be read"),
        Fault::Unimplemented => (ErrorKind::Protocol, "the server is too old: 3.6 or newer is needed"),
        _ => (ErrorKind::Indeterminate, "the connection to the servers was lost: it may have happened"),
    };
    Error::new(kind, message).because(fault)
}

/// The same, when nothing can have been sent yet.
pub(crate) fn unreachable(fault: Fault) -> Error {
    let error = said(fault.clone());
    if error.kind() == ErrorKind::Indeterminate {
        return Error::new(
            ErrorKind::Unavailable,
            "no server answers: check that they run and can be reached",
        )
        .because(fault);
    }
    error
}

/// Whether a session is over for good.
pub(crate) fn is_over(fault: &Fault) -> bool {
    matches!(fault, Fault::SessionExpired | Fault::ClientClosed | Fault::SessionMoved)
}

/// How a transaction failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Something else was written first: look again.
    Overtaken,
    /// The node that all locks are in is missing.
    Rootless,
    Broken(Fault),
}

impl Failed {
    /// How a transaction failed that may have begun with making the lock's node.
    pub(crate) fn of(error: MultiWriteError, is_new: bool) -> Self {
        let (first, fault) = match error {
            MultiWriteError::RequestFailed { source } => (false, source),
            MultiWriteError::OperationFailed { index, source } => (index == 0, source),
        };
        match fault {
            Fault::NoNode if first && is_new => Self::Rootless,
            Fault::NoNode | Fault::NodeExists | Fault::BadVersion | Fault::NotEmpty => Self::Overtaken,
            fault => Self::Broken(fault),
        }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Broken(fault)
    }
}
