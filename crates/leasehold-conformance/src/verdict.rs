//! How a case ends: well, with a failure that says where, or not at all for a reason.

use std::fmt::{self, Display};
use std::panic::Location;

use leasehold_core::{Answer, Error, Grant, Place};

/// The end of a case.
pub(crate) type Verdict<T = ()> = Result<T, Stop>;

/// Why a case went no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The law is broken.
    Fail(String),
    /// The law does not apply to this store.
    Skip(String),
}

impl Stop {
    #[track_caller]
    pub(crate) fn fail(what: impl Display) -> Self {
        let at = Location::caller();
        Self::Fail(format!("{what} ({}:{})", at.file(), at.line()))
    }

    pub(crate) fn skip(reason: impl Display) -> Self {
        Self::Skip(reason.to_string())
    }
}

impl Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Fail(text) | Self::Skip(text)) = self;
        f.write_str(text)
    }
}

impl From<Error> for Stop {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::fail(format_args!("unexpected error of kind {:?}: {error}", error.kind()))
    }
}

/// Reads an answer as the case expects it.
pub(crate) trait Expect {
    /// It must be `Granted`.
    fn granted(self) -> Verdict<Grant>;
    /// It must be `Waiting`.
    fn waiting(self) -> Verdict<Place>;
}

impl Expect for Answer {
    #[track_caller]
    fn granted(self) -> Verdict<Grant> {
        match self {
            Self::Granted(grant) => Ok(grant),
            other => Err(Stop::fail(format_args!("expected Granted, got {other:?}"))),
        }
    }

    #[track_caller]
    fn waiting(self) -> Verdict<Place> {
        match self {
            Self::Waiting(place) => Ok(place),
            other => Err(Stop::fail(format_args!("expected Waiting, got {other:?}"))),
        }
    }
}
