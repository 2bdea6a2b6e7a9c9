//! How those who wait hear of their turn: by inotify, or not at all, and then they look.

use std::fmt::Debug;
use std::sync::Arc;

use crate::home::Home;
use crate::live::Live;
use crate::records::Shared;

/// Hears of news and of deaths, for all of a store's clients.
pub(crate) trait Watch: Debug + Send + Sync {
    /// Whether everything is heard; otherwise whoever waits looks.
    fn is_whole(&self) -> bool;

    /// Hears from now on whose session ends here. To watch what is watched changes nothing.
    fn home(&self, home: &Home);

    /// Hears from now on what this session is told.
    fn news(&self, live: &Arc<Live>);

    /// Starts to hear, if nobody does.
    fn listen(&self, shared: &Arc<Shared>);
}

/// The best there is here.
pub(crate) fn watch() -> Box<dyn Watch> {
    #[cfg(target_os = "linux")]
    match crate::inotify::Inotify::new() {
        Ok(inotify) => return Box::new(inotify),
        Err(error) => tracing::debug!(%error, "no inotify: who waits looks"),
    }
    Box::new(Deaf)
}

/// Systems without inotify, and users who have too many of it already.
#[derive(Debug)]
struct Deaf;

impl Watch for Deaf {
    fn is_whole(&self) -> bool {
        false
    }

    fn home(&self, _home: &Home) {}

    fn news(&self, _live: &Arc<Live>) {}

    fn listen(&self, _shared: &Arc<Shared>) {}
}
