//! One word for how a call ended: what traces and metrics say of it.

use crate::claim::{Answer, Released};
use crate::error::Result;
use crate::store::{Page, Snapshot};

/// Something that a call answers, in a word.
pub(super) trait Word {
    fn word(&self) -> &'static str;
}

/// How a call ended.
pub(super) fn outcome<T: Word>(result: &Result<T>) -> &'static str {
    match result {
        Ok(answer) => answer.word(),
        Err(error) => error.kind().as_str(),
    }
}

impl Word for () {
    fn word(&self) -> &'static str {
        "ok"
    }
}

impl Word for Answer {
    fn word(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Waiting(_) => "waiting",
            Self::Busy => "busy",
            Self::Gone => "gone",
            Self::Left(_) => "left",
            Self::Done => "done",
        }
    }
}

impl Word for Vec<Answer> {
    fn word(&self) -> &'static str {
        if self.contains(&Answer::Gone) { "gone" } else { "ok" }
    }
}

impl Word for Released {
    fn word(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::Gone => "gone",
        }
    }
}

impl Word for Option<Snapshot> {
    fn word(&self) -> &'static str {
        if self.is_some() { "in_use" } else { "free" }
    }
}

impl Word for Page {
    fn word(&self) -> &'static str {
        "ok"
    }
}

impl Word for bool {
    fn word(&self) -> &'static str {
        if *self { "evicted" } else { "gone" }
    }
}
