//! What it means when a server refuses, fails or says nothing.

use leasehold_core::{Error, ErrorKind};

/// How a call ended without an answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The lease that was to carry a key is gone: nothing was written.
    LeaseGone,
    /// What we logged in with is not valid any more: nothing was done.
    LoggedOut,
    /// This member cannot serve now, another one may.
    Member(Error),
    /// Trying again does not help.
    Final(Error),
}

impl Fault {
    /// The connection broke, or could not be made.
    pub(crate) fn lost(
        kind: ErrorKind,
        message: &str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Member(Error::new(kind, message).because(cause))
    }

    /// Whether the request surely was not carried out, and may be by another member or after another login.
    pub(crate) fn did_nothing(&self) -> bool {
        match self {
            Self::LoggedOut => true,
            Self::Member(error) => error.kind() == ErrorKind::Unavailable,
            Self::LeaseGone | Self::Final(_) => false,
        }
    }

    /// The same after another request of the same call was carried out.
    pub(crate) fn in_doubt(self) -> Self {
        match self {
            Self::Member(error) if error.kind() == ErrorKind::Unavailable => {
                let message = "only a part of it was done, and nobody knows which";
                Self::Member(Error::new(ErrorKind::Indeterminate, message).because(error))
            }
            other => other,
        }
    }

    /// What a gRPC status means: its number, and the server's words.
    pub(crate) fn of(code: u32, message: &str) -> Self {
        let has = |part: &str| message.contains(part);
        let told =
            |kind, advice: &str| Error::new(kind, advice).because(format!("\"{}\"", message.escape_debug()));
        match code {
            5 if has("lease not found") => Self::LeaseGone,
            16 => Self::LoggedOut,
            3 if has("invalid auth token")
                || has("auth: revision")
                || has("revision of auth store is old") =>
            {
                Self::LoggedOut
            }
            3 if has("user name is empty") => Self::Final(told(
                ErrorKind::Denied,
                "the cluster wants a user: write etcd://user:password@host",
            )),
            3 if has("authentication failed") || has("user name not found") => Self::Final(told(
                ErrorKind::Denied,
                "the cluster refused user or password: put the right ones into the URL",
            )),
            9 if has("authentication is not enabled") => Self::Final(told(
                ErrorKind::Denied,
                "the cluster has no users: leave user and password out of the URL",
            )),
            7 => Self::Final(told(
                ErrorKind::Denied,
                "this user lacks a right: give its role read and write under the store's prefix",
            )),
            // Refused before anything was proposed.
            14 if has("no leader") => Self::Member(
                told(ErrorKind::Unavailable, "this member has no leader: try again when it has one")
                    .transient_if(true),
            ),
            8 if has("too many requests") => Self::Member(told(
                ErrorKind::Unavailable,
                "the cluster has too much to do: try again in a moment",
            )),
            8 if has("space exceeded") => Self::Final(told(
                ErrorKind::Unavailable,
                "the database is full: compact and defragment it, then disarm the alarm",
            )),
            12 => Self::Final(told(
                ErrorKind::Protocol,
                "this is not etcd's API version 3: name the client port of an etcd server",
            )),
            1 | 2 | 4 | 8 | 13 | 14 | 15 => {
                Self::Member(told(ErrorKind::Indeterminate, "the member failed: it may have happened"))
            }
            _ => Self::Final(told(
                ErrorKind::Protocol,
                "the server answered something that this version does not know",
            )),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::LeaseGone => Self::new(ErrorKind::Unavailable, "the session ended meanwhile: try again"),
            Fault::LoggedOut => {
                Self::new(ErrorKind::Denied, "the cluster does not know us any more: check user and password")
            }
            Fault::Member(error) | Fault::Final(error) => error,
        }
    }
}
