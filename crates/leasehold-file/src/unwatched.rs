//! Systems without inotify: nobody is told, and whoever waits looks.

use std::sync::Arc;

use crate::home::Home;
use crate::live::Live;
use crate::records::Shared;

/// Never there.
#[derive(Debug)]
pub(crate) enum Watch {}

impl Watch {
    pub(crate) fn new() -> Option<Self> {
        None
    }

    pub(crate) fn is_whole(&self) -> bool {
        match *self {}
    }

    pub(crate) fn home(&self, _home: &Home) {
        match *self {}
    }

    pub(crate) fn news(&self, _live: &Arc<Live>) {
        match *self {}
    }

    pub(crate) fn listen(&self, _shared: &Arc<Shared>) {
        match *self {}
    }
}
