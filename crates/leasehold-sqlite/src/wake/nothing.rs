//! Where there is no abstract socket namespace, clients poll.

use std::path::Path;
use std::sync::Weak;

use leasehold_core::{Inbox, Key, Wake};

#[derive(Debug, Default)]
pub(super) struct Post;

#[derive(Debug)]
pub(super) struct Listener;

impl Post {
    pub(super) fn set_file(&self, _: &Path) {}

    pub(super) fn listen(&self, _: Inbox, _: Weak<dyn Wake>) -> Listener {
        Listener
    }

    pub(super) fn send(&self, _: Inbox, _: &Key) {}
}
