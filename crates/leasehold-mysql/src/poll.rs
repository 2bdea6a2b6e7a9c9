//! How a waiter hears of its turn where the database cannot tell: one look for all who wait, often while somebody does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Answer, Claim, ClaimId, Inbox, Key, Promotion, Wakes};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::link::Link;
use crate::rows::get;
use crate::sql::{bytes, list};

/// How often somebody who waits is looked for. A hand-over then takes half of it, and a look more at the most.
const EVERY: Duration = Duration::from_millis(30);

/// The most that one look asks about.
const AT_ONCE: usize = 500;

#[derive(Debug, Default)]
struct State {
    inboxes: HashMap<Inbox, Wakes>,
    waiting: HashMap<ClaimId, (Key, Inbox)>,
    task: Option<AbortHandle>,
}

/// Who waits, and whom to tell.
#[derive(Debug, Default)]
pub(crate) struct Poll {
    state: Mutex<State>,
    somebody: Notify,
}

impl Poll {
    pub(crate) fn open(&self, inbox: Inbox, wakes: Wakes) {
        let mut state = self.lock();
        state.inboxes.retain(|_, wakes| !wakes.is_gone());
        state.inboxes.insert(inbox, wakes);
    }

    /// Notes how a claim stands: who waits is looked after from now on.
    pub(crate) fn note(self: &Arc<Self>, link: &Arc<Link>, claim: &Claim, answer: &Answer) {
        let mut state = self.lock();
        if !matches!(answer, Answer::Waiting(_)) {
            state.waiting.remove(&claim.id);
            return;
        }
        state.waiting.insert(claim.id, (claim.key.clone(), claim.inbox));
        if state.task.as_ref().is_none_or(AbortHandle::is_finished) {
            let (poll, link) = (Arc::downgrade(self), Arc::downgrade(link));
            state.task = Some(tokio::spawn(look(poll, link)).abort_handle());
        }
        self.somebody.notify_one();
    }

    pub(crate) fn forget(&self, id: &ClaimId) {
        self.lock().waiting.remove(id);
    }

    pub(crate) fn promoted(&self, promotions: &[Promotion]) {
        for promotion in promotions {
            let wakes = self.lock().inboxes.get(&promotion.inbox).cloned();
            if let Some(wakes) = wakes {
                wakes.promoted(promotion);
            }
        }
    }

    pub(crate) fn look(&self, key: &Key, inboxes: &[Inbox]) {
        for inbox in inboxes {
            let wakes = self.lock().inboxes.get(inbox).cloned();
            if let Some(wakes) = wakes {
                wakes.look(key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below the lock panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        if let Some(task) = &self.lock().task {
            task.abort();
        }
    }
}

/// Looks for those who hold by now, for as long as somebody waits and the store is there.
async fn look(poll: Weak<Poll>, link: Weak<Link>) {
    loop {
        sleep(EVERY).await;
        let (Some(poll), Some(link)) = (poll.upgrade(), link.upgrade()) else { return };
        let (waiting, idle) = {
            let mut state = poll.lock();
            let State { inboxes, waiting, .. } = &mut *state;
            waiting.retain(|_, (_, inbox)| inboxes.get(inbox).is_some_and(|wakes| !wakes.is_gone()));
            let some: Vec<_> = waiting.iter().take(AT_ONCE).map(|(id, at)| (*id, at.clone())).collect();
            (some, state.waiting.is_empty())
        };
        if idle {
            return;
        }
        let pairs = waiting
            .iter()
            .map(|(id, (key, _))| format!("({}, {})", bytes(key.as_str().as_bytes()), bytes(id.as_bytes())));
        let sql = format!(
            "SELECT id, seat, token, held FROM leasehold_claims WHERE (name, id) IN ({}) AND held > 0 AND turn IS NULL",
            list(pairs)
        );
        let Ok(rows) = link.read(&sql).await else { continue };
        let at: HashMap<_, _> = waiting.into_iter().collect();
        for row in rows {
            let number = |at| get::<i64>(&row, at).map(i64::cast_unsigned);
            let id = get::<Vec<u8>>(&row, 0).ok().and_then(|id| <[u8; 16]>::try_from(id).ok());
            let (Some(id), Ok(seat), Ok(token), Ok(units)) = (id, number(1), number(2), number(3)) else {
                continue;
            };
            let id = ClaimId::from_bytes(id);
            if let Some((key, inbox)) = at.get(&id) {
                poll.forget(&id);
                poll.promoted(&[Promotion { key: key.clone(), inbox: *inbox, seat, token, units }]);
            }
        }
    }
}
