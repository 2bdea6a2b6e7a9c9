//! Hearing of news and of deaths by inotify: one descriptor and one task for all of a store's clients.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::record::Session;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

use crate::home::Home;
use crate::live::Live;
use crate::records::Shared;
use crate::watch::Watch;

/// A file is reported closed just before its lock is gone: how often and when it is looked at again.
const LOOKS: u32 = 40;
const LOOKS_EVERY: Duration = Duration::from_millis(2);

/// The sessions whose news are watched.
type News = Mutex<HashMap<i32, Weak<Live>>>;

/// What is watched, and the task that hears of it.
#[derive(Debug)]
pub(crate) struct Inotify {
    inotify: Arc<OwnedFd>,
    news: Arc<News>,
    /// Something could not be watched.
    is_deaf: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

impl Inotify {
    /// An error when this user has too many already.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        let (news, is_deaf, task) = Default::default();
        Ok(Self { inotify, news, is_deaf, task })
    }

    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &std::path::Path, flags: WatchFlags) -> Option<i32> {
        let added = inotify::add_watch(&*self.inotify, path, flags | WatchFlags::DONT_FOLLOW);
        if let Err(error) = added {
            tracing::debug!(%error, "inotify takes no more: who waits looks");
            self.is_deaf.store(true, Ordering::Release);
        }
        added.ok()
    }
}

impl Watch for Inotify {
    fn is_whole(&self) -> bool {
        let is_gone = self.task().as_ref().is_some_and(AbortHandle::is_finished);
        !self.is_deaf.load(Ordering::Acquire) && !is_gone
    }

    fn home(&self, home: &Home) {
        let ends = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        self.add(&home.path.join("sessions"), ends);
    }

    fn news(&self, live: &Arc<Live>) {
        let path = live.home.path.join("news").join(&*live.session.0);
        if let Some(watch) = self.add(&path, WatchFlags::MODIFY) {
            all(&self.news).insert(watch, Arc::downgrade(live));
        }
    }

    fn listen(&self, shared: &Arc<Shared>) {
        let mut task = self.task();
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            #[allow(
                deprecated,
                reason = "a shared `OwnedFd` is always the same descriptor: what is asked for"
            )]
            match AsyncFd::with_interest(self.inotify.clone(), Interest::READABLE) {
                Ok(inotify) => {
                    let hears = hear(inotify, self.news.clone(), Arc::downgrade(shared));
                    *task = Some(tokio::spawn(hears).abort_handle());
                }
                Err(error) => {
                    tracing::debug!(%error, "no listener: who waits looks");
                    self.is_deaf.store(true, Ordering::Release);
                }
            }
        }
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        if let Some(task) = &*self.task() {
            task.abort();
        }
    }
}

fn all(news: &News) -> MutexGuard<'_, HashMap<i32, Weak<Live>>> {
    news.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hears until the store is gone.
async fn hear(inotify: AsyncFd<Arc<OwnedFd>>, news: Arc<News>, shared: Weak<Shared>) {
    loop {
        let Ok(mut ready) = inotify.readable().await else { return };
        let Some(shared) = shared.upgrade() else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&**inotify.get_ref(), &mut buffer);
        while let Ok(event) = reader.next() {
            heard(&event, &news, &shared);
        }
        ready.clear_ready();
    }
}

fn heard(event: &inotify::Event<'_>, news: &News, shared: &Arc<Shared>) {
    if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
        shared.look_all();
    } else if event.events().contains(ReadFlags::IGNORED) {
        all(news).remove(&event.wd());
    } else if let Some(name) = event.file_name() {
        let session = Session(name.to_string_lossy().into());
        if shared.guests.is_known(&session) {
            tokio::spawn(see_off(Arc::downgrade(shared), session));
        }
    } else {
        let live = all(news).get(&event.wd()).and_then(Weak::upgrade);
        if let Some(live) = live {
            shared.deliver(&live);
        }
    }
}

/// A session that somebody here counts on was closed: looks until that is so, and says it.
async fn see_off(shared: Weak<Shared>, session: Session) {
    for _ in 0..LOOKS {
        let Some(shared) = shared.upgrade() else { return };
        let session = session.clone();
        let is_over = shared.run(move |shared| match shared.place.current() {
            Some(home) => shared.guests.look_at(&home, &session),
            None => Ok(true),
        });
        if is_over.await.unwrap_or(true) {
            shared.look_all();
            return;
        }
        drop(shared);
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}
