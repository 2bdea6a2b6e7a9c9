//! What happens, told on stderr: as text for people, or as one JSON object per line for a supervisor.

use std::fmt;
use std::sync::OnceLock;

use leasehold::Check;
use serde::Serialize;

use super::{Plain, stderr};
use crate::exit::Failure;

/// How remarks are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remarks {
    Text,
    Json,
}

/// One for the process, as there is one stderr.
static REMARKS: OnceLock<Remarks> = OnceLock::new();

impl Remarks {
    /// Tells everything this way from now on.
    pub(crate) fn choose(self) {
        // The first choice stands; there is only one.
        let _ = REMARKS.set(self);
    }

    fn chosen() -> Self {
        *REMARKS.get().unwrap_or(&Self::Text)
    }
}

/// A step of `run` or `elect`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Remark<'a> {
    Acquired {
        key: &'a str,
        token: u64,
    },
    Released {
        key: &'a str,
    },
    Asked {
        key: &'a str,
    },
    Lost {
        key: &'a str,
        cause: String,
        #[serde(skip)]
        program: Program,
    },
    /// A setting of the store that weakens a promise.
    Warning {
        setting: &'a str,
        found: &'a str,
        effect: &'a str,
        remedy: &'a str,
    },
    Failed {
        exit: u8,
        message: String,
    },
    Note {
        message: String,
    },
}

impl fmt::Display for Remark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquired { key, token } => write!(f, "acquired \"{}\", token {token}", Plain(key)),
            Self::Released { key } => write!(f, "released \"{}\"", Plain(key)),
            Self::Asked { key } => write!(f, "somebody asks for \"{}\"", Plain(key)),
            Self::Lost { key, cause, program: Program::Ended } => {
                write!(f, "lost \"{}\": {cause}; the program was ended", Plain(key))
            }
            Self::Lost { key, cause, program: Program::NotStarted } => {
                write!(f, "lost \"{}\": {cause}; the program was not started", Plain(key))
            }
            Self::Warning { setting, found, effect, remedy } => {
                write!(f, "warning: {} is {}", Plain(setting), Plain(found))?;
                let rest = [(": ", effect), ("; ", remedy)].into_iter().filter(|(_, text)| !text.is_empty());
                rest.into_iter().try_for_each(|(before, text)| write!(f, "{before}{}", Plain(text)))
            }
            Self::Failed { message, .. } | Self::Note { message } => f.write_str(message),
        }
    }
}

impl Remark<'_> {
    /// Tells it.
    pub(crate) fn tell(&self) {
        stderr::write(match Remarks::chosen() {
            Remarks::Text => format!("leasehold: {self}\n"),
            Remarks::Json => serde_json::to_string(self).unwrap_or_default() + "\n",
        });
    }

    /// Tells it if people asked to hear of what goes as it should; machines hear of everything.
    pub(crate) fn tell_if(&self, verbose: bool) {
        if verbose || Remarks::chosen() == Remarks::Json {
            self.tell();
        }
    }
}

/// What became of the program when the lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    NotStarted,
    Ended,
}

/// Warns of a setting of the store.
pub(crate) fn warn(check: &Check) {
    let Check { name, found, effect, remedy, .. } = check;
    Remark::Warning { setting: name, found, effect, remedy }.tell();
}

/// A remark for people. Silence on stderr is success.
pub(crate) fn say(message: impl fmt::Display) {
    Remark::Note { message: message.to_string() }.tell();
}

/// Why the command ends as it does.
pub(crate) fn complain(failure: &Failure) {
    Remark::Failed { exit: failure.exit.code(), message: failure.to_string() }.tell();
}
