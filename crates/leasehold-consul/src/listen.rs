//! Hearing of news: a blocking query on the keys of each session.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::Method;
use leasehold_core::record::{Message, Session};
use leasehold_core::{BootClock, Clock, Inbox, Moment, Result, Wakes};

use crate::http::Effect;
use crate::kv::{self, Entry};
use crate::session::Live;
use crate::store::Shared;

/// How long a blocking query waits at the server.
pub(crate) const WAIT: Duration = Duration::from_secs(20);
/// By how much the answer may be later than that: the server adds up to a sixteenth.
pub(crate) const LATE: Duration = Duration::from_secs(5);

/// How long a look at all living sessions is believed. A session that is not in it is looked for again at once.
const BELIEVED: Duration = Duration::from_millis(500);

/// The clients of this process.
#[derive(Debug, Default)]
pub(crate) struct Inboxes(Mutex<HashMap<Inbox, Wakes>>);

impl Inboxes {
    pub(crate) fn put(&self, inbox: Inbox, wakes: Wakes) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, wakes| !wakes.is_gone());
        all.insert(inbox, wakes);
    }

    pub(crate) fn get(&self, inbox: Inbox) -> Option<Wakes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&inbox).cloned()
    }
}

/// The sessions that lived when somebody last looked.
#[derive(Debug, Default)]
pub(crate) struct Alive(Mutex<Option<(Moment, Arc<HashSet<String>>)>>);

impl Alive {
    fn lately(&self) -> Option<Arc<HashSet<String>>> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, all) = seen.as_ref()?;
        (BootClock.now().since(*at) < BELIEVED).then(|| all.clone())
    }

    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Shared {
    /// Which of these sessions are over.
    pub(crate) async fn dead(&self, sessions: &[Session]) -> Result<Vec<Session>> {
        // Our own need no asking while they were renewed lately.
        let ours = |session: &Session| self.sessions.find(session).is_some_and(|live| live.surely_lives());
        let all_in =
            |all: &HashSet<String>| sessions.iter().all(|session| all.contains(&*session.0) || ours(session));
        if all_in(&HashSet::new()) {
            return Ok(Vec::new());
        }
        if self.alive.lately().is_some_and(|all| all_in(&all)) {
            return Ok(Vec::new());
        }
        let (at, prefix) = (BootClock.now(), self.names.all_alive());
        let names = self.http.keys(&prefix).await?;
        let all: HashSet<String> =
            names.iter().filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned)).collect();
        let dead =
            sessions.iter().filter(|session| !all.contains(&*session.0) && !ours(session)).cloned().collect();
        *self.alive.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, Arc::new(all)));
        Ok(dead)
    }

    /// Delivers the news of a session to its client, until the session is over.
    pub(crate) async fn hear(&self, live: &Live) {
        let (mut index, mut pause) = (0, Duration::ZERO);
        loop {
            match self.news(live, index).await {
                Ok(Some((next, entries))) => {
                    for entry in entries.iter().filter(|entry| entry.modify_index > index) {
                        self.deliver(live, entry).await;
                    }
                    if !pause.is_zero() {
                        live.wakes.iter().for_each(|wakes| wakes.look_all());
                    }
                    // An index that goes back means that the server started again: ask for everything.
                    index = if next < index { 0 } else { next };
                    pause = Duration::ZERO;
                }
                // The session is over, and with it all that it carried; or a leader answered that has not applied its
                // log yet. Only a read that the majority confirms can tell.
                Ok(None) => {
                    match self.look_again(live).await {
                        Ok(true) => {}
                        Ok(false) => {
                            live.wakes.iter().for_each(|wakes| wakes.look_all());
                            return;
                        }
                        Err(error) => tracing::debug!(%error, "cannot tell whether the session is over"),
                    }
                    index = 0;
                    back_off(&mut pause).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "no news: trying again");
                    back_off(&mut pause).await;
                }
            }
        }
    }

    /// Passes a message on. A token may have the right to write messages and not locks, so the lock's record must say
    /// that a claim holds.
    async fn deliver(&self, live: &Live, entry: &Entry) {
        let Some(wakes) = &live.wakes else { return };
        let Some(message) = entry.value().ok().and_then(|bytes| Message::read(&bytes)) else { return };
        let Some(key) = message.key() else { return };
        let promotions = match message.promotions(live.inbox).is_empty() {
            true => Vec::new(),
            false => self.record(&key).await.map_or_else(
                |error| {
                    tracing::debug!(%key, %error, "cannot confirm a promotion");
                    Vec::new()
                },
                |record| message.confirmed_by(&record, live.inbox),
            ),
        };
        if promotions.is_empty() {
            wakes.look(&key);
        }
        promotions.iter().for_each(|promotion| wakes.promoted(promotion));
    }

    async fn news(&self, live: &Live, index: u64) -> Result<Option<(u64, Vec<Entry>)>> {
        let path = format!(
            "/v1/kv/{}?recurse&index={index}&wait={}s",
            kv::path(&self.names.client(live.id())),
            WAIT.as_secs()
        );
        let asked = self.http.ask_within(Method::GET, &path, Vec::new(), Effect::Reads, WAIT + LATE).await?;
        match asked.status {
            200 => Ok(Some((asked.index, kv::read(&asked)?))),
            404 => Ok(None),
            _ => Err(kv::refused(&asked, Effect::Reads)),
        }
    }
}

/// Waits, each time longer.
async fn back_off(pause: &mut Duration) {
    *pause = (*pause * 2).clamp(Duration::from_millis(50), Duration::from_secs(1));
    tokio::time::sleep(*pause).await;
}
