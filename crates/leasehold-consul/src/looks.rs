//! Looking at many keys with one request: who looks at the same moment is served together.
//!
//! A renewal looks at all locks of a client, and a listing at all there are. Each look is a call of its own; those that
//! are made together become one read-only transaction, which is as good a proof as a consistent read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{Error, Result};
use tokio::sync::oneshot;

use crate::http::Http;
use crate::kv::{Entry, Found};

/// How many keys one transaction reads: what the oldest servers take.
const TOGETHER: usize = 64;

type Answer = oneshot::Sender<Result<Option<Entry>>>;

/// Looks that are about to be made.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<Vec<(String, Answer)>>);

impl Looks {
    fn lock(&self) -> MutexGuard<'_, Vec<(String, Answer)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key's entry, as the majority has it.
    pub(crate) async fn get(&self, http: &Http, key: &str) -> Result<Option<Entry>> {
        loop {
            let (answer, answered) = oneshot::channel();
            let is_first = {
                let mut waiting = self.lock();
                waiting.push((key.to_owned(), answer));
                waiting.len() == 1
            };
            if is_first {
                self.serve(http).await;
            }
            // Without an answer whoever served was dropped half-way: somebody else must.
            if let Ok(answer) = answered.await {
                return answer;
            }
        }
    }

    /// Makes all looks that others want to make at this moment.
    async fn serve(&self, http: &Http) {
        let turn = Turn(self);
        // Those who run beside us get as far as this.
        tokio::task::yield_now().await;
        let mut all = turn.take();
        while !all.is_empty() {
            let some: Vec<_> = all.drain(..all.len().min(TOGETHER)).collect();
            answer(http, some).await;
        }
    }
}

/// Dropped before its looks were made, it leaves nobody waiting.
struct Turn<'a>(&'a Looks);

impl Turn<'_> {
    /// The looks; from now on whoever has them answers for them.
    fn take(self) -> Vec<(String, Answer)> {
        let looks = std::mem::take(&mut *self.0.lock());
        std::mem::forget(self);
        looks
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().clear();
    }
}

async fn answer(http: &Http, mut looks: Vec<(String, Answer)>) {
    // Whoever asked may have gone: then nobody hears the answer.
    if looks.len() == 1
        && let Some((key, answer)) = looks.pop()
    {
        let _ = answer.send(http.get(&key).await);
        return;
    }
    // Every key that is not there fails the transaction, and is known not to be there then.
    while !looks.is_empty() {
        match http.get_all(looks.iter().map(|(key, _)| key.clone()).collect()).await {
            Ok(Found::All(entries)) => {
                let entries: HashMap<String, Entry> =
                    entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
                for (key, answer) in looks.drain(..) {
                    // Several may look at the same key.
                    let _ = answer.send(Ok(entries.get(&key).cloned()));
                }
            }
            Ok(Found::Absent(places)) => {
                for at in places.into_iter().rev().filter(|at| *at < looks.len()).collect::<Vec<_>>() {
                    let _ = looks.remove(at).1.send(Ok(None));
                }
            }
            Err(error) => {
                for (_, answer) in looks.drain(..) {
                    let _ = answer.send(Err(Error::new(error.kind(), error.to_string()).at("consul")));
                }
            }
        }
    }
}
