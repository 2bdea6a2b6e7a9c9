//! The scripts, and calls of them.

use std::sync::OnceLock;

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    /// The verb, for messages.
    pub(crate) name: &'static str,
    file: &'static str,
    sha1: OnceLock<String>,
}

/// One call of a script, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    /// The hash slot of its keys.
    pub(crate) slot: u16,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) ack: Ack,
}

/// Whether a call counts only when replicas have it, on stores that ask for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// Somebody will rely on it: a grant, a renewal, a change.
    Needed,
    /// Nobody is harmed when it is undone: a release, a look.
    Free,
}

impl Script {
    pub(crate) const fn new(name: &'static str, file: &'static str) -> Self {
        Self { name, file, sha1: OnceLock::new() }
    }

    /// The whole text.
    pub(crate) fn source(&self) -> &str {
        self.file
    }

    /// What a server calls it.
    pub(crate) fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| redis::Script::new(self.file).get_hash().to_owned())
    }
}
