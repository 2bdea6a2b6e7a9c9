//! Whoever is next watches those who hold: when a holder dies its session's key goes, and that is an event.
//!
//! Only the one that is next does, and only for as long as a blocking query lasts: it looks once a second anyway, and each
//! look begins a watch where there is none. So a lock that many wait for costs one query, and what is forgotten
//! ends by itself.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::Method;
use leasehold_core::{Inbox, Key, Result, Wakes};
use serde::Deserialize;

use crate::http::Effect;
use crate::kv;
use crate::listen::{LATE, WAIT};
use crate::session::GLANCE;
use crate::store::Shared;

/// Of many who hold, so many are watched: the others are found dead by a look.
const MOST: usize = 4;

/// What is watched: on whose behalf, and which session.
type Watched = (Key, String);

/// The watches of this process.
#[derive(Debug, Default)]
pub(crate) struct Heirs(Mutex<HashSet<Watched>>);

impl Heirs {
    fn lock(&self) -> MutexGuard<'_, HashSet<Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record, as far as it matters here.
#[derive(Deserialize)]
struct Queue<'a> {
    #[serde(borrow, default)]
    claims: Vec<Claimed<'a>>,
}

#[derive(Deserialize)]
struct Claimed<'a> {
    #[serde(default)]
    held: u64,
    #[serde(default)]
    inbox: u64,
    #[serde(borrow, default)]
    session: Option<&'a str>,
}

/// Who is next, and the sessions of those who hold.
fn next_in_line(record: &[u8]) -> Option<(Inbox, Vec<String>)> {
    let queue: Queue<'_> = serde_json::from_slice(record).ok()?;
    // By seat, so the first that holds nothing is the next.
    let next = queue.claims.iter().find(|claim| claim.held == 0)?;
    let holding = queue.claims.iter().filter(|claim| claim.held > 0).filter_map(|claim| claim.session);
    Some((Inbox(next.inbox), holding.take(MOST).map(str::to_owned).collect()))
}

impl Shared {
    /// A record was seen: if a client of ours is next, it hears of the end of those who hold.
    pub(crate) fn seen(self: &Arc<Self>, key: &Key, record: &[u8]) {
        let Some((inbox, holding)) = next_in_line(record) else { return };
        let (Some(wakes), Ok(runtime)) = (self.inboxes.get(inbox), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        for session in holding {
            // Our own tell themselves, by what they renew.
            if self.sessions.is_ours(&session) || !self.heirs.lock().insert((key.clone(), session.clone())) {
                continue;
            }
            let (shared, key, wakes) = (self.clone(), key.clone(), wakes.clone());
            runtime.spawn(async move {
                tokio::select! {
                    ended = shared.ends(&session) => match ended {
                        Ok(true) => wakes.look(&key),
                        Ok(false) => {}
                        Err(error) => tracing::debug!(%key, %error, "who holds is not watched"),
                    },
                    () = gone(&wakes) => {}
                }
                shared.heirs.lock().remove(&(key, session));
            });
        }
    }

    /// Waits for the end of a session, as long as one query does. `false` if it lives then.
    async fn ends(&self, session: &str) -> Result<bool> {
        let name = kv::path(&self.names.alive(session));
        let mut index = 0;
        for _ in 0..2 {
            let path = format!("/v1/kv/{name}?index={index}&wait={}s", WAIT.as_secs());
            let reply =
                self.http.ask_within(Method::GET, &path, Vec::new(), Effect::Reads, WAIT + LATE).await?;
            match reply.status {
                200 => index = reply.index,
                404 => return Ok(true),
                _ => return Err(kv::refused(&reply, Effect::Reads)),
            }
        }
        Ok(false)
    }
}

async fn gone(wakes: &Wakes) {
    while !wakes.is_gone() {
        tokio::time::sleep(GLANCE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_holds_nothing_is_next_and_holders_are_watched() {
        let record = br#"{"leasehold":1,"key":"k","last":3,"limit":2,"claims":[
            {"id":"1","seat":1,"token":1,"held":1,"session":"a","inbox":7},
            {"id":"2","seat":2,"token":2,"held":1,"session":"b","inbox":8},
            {"id":"3","seat":3,"wanted":1,"session":"c","inbox":9},
            {"id":"4","seat":4,"wanted":1,"session":"d","inbox":10}]}"#;
        assert_eq!(next_in_line(record), Some((Inbox(9), vec!["a".to_owned(), "b".to_owned()])));
    }

    #[test]
    fn where_nobody_waits_nobody_is_watched() {
        let held =
            br#"{"leasehold":1,"key":"k","last":1,"claims":[{"seat":1,"held":1,"session":"a","inbox":7}]}"#;
        assert_eq!(next_in_line(held), None);
        assert_eq!(next_in_line(b"{}"), None);
        assert_eq!(next_in_line(b"something else"), None);
    }
}
