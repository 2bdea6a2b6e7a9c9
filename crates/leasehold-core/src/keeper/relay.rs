//! Passing a lock on inside a client, among claims that do not mind the queue.
//!
//! Where several tasks of a client barge for one lock, one of them asks the store and the others are parked here. Who
//! gives the lock back makes it the next one's, with a token of its own, by the call that would have released it: one
//! round trip where a release and a claim are two. Every so often it is released all the same, for everybody else.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::capability::{Capability, Info, Renewal};
use crate::claim::{Claim, ClaimId, IfBusy, Order};
use crate::key::Key;

/// So many times a lock goes from task to task before the store may give it to others.
const PASSES: u32 = 32;

/// Resolves, with nothing, when who is parked must ask the store itself.
pub(super) type MustAsk = oneshot::Receiver<Infallible>;

/// A parked claim. Dropped, it asks the store itself.
#[derive(Debug)]
pub(super) struct Heir {
    pub(super) claim: Claim,
    _parked: oneshot::Sender<Infallible>,
}

/// The claims of one client that share a lock.
#[derive(Debug)]
struct Relay {
    /// The one that the store knows of, or is about to.
    runner: ClaimId,
    terms: Terms,
    passes: u32,
    parked: Parked,
}

/// Claims in the order in which they came.
#[derive(Debug, Default)]
struct Parked {
    heirs: BTreeMap<u64, Heir>,
    /// The number of each claim in `heirs`.
    numbers: HashMap<ClaimId, u64>,
    last: u64,
}

impl Parked {
    fn push(&mut self, heir: Heir) {
        self.last += 1;
        self.numbers.insert(heir.claim.id, self.last);
        self.heirs.insert(self.last, heir);
    }

    fn pop(&mut self) -> Option<Heir> {
        let (_, heir) = self.heirs.pop_first()?;
        self.numbers.remove(&heir.claim.id);
        Some(heir)
    }

    /// `true` if the claim was there.
    fn remove(&mut self, id: &ClaimId) -> bool {
        self.numbers.remove(id).is_some_and(|number| self.heirs.remove(&number).is_some())
    }
}

/// What all claims of a relay have in common: a task gets the lock exactly as it asked for it.
#[derive(Debug, PartialEq, Eq)]
struct Terms {
    limit: u64,
    lease: Option<Duration>,
    renewal: Renewal,
}

#[derive(Debug, Default)]
pub(super) struct Relays(BTreeMap<Key, Relay>);

impl Relays {
    /// Parks a claim that [`can_be_passed`] behind another on the same terms. `None` when it must ask now.
    pub(super) fn join(&mut self, claim: &Claim, renewal: Renewal) -> Option<MustAsk> {
        let terms = Terms { limit: claim.limit, lease: claim.lease, renewal };
        let Some(relay) = self.0.get_mut(&claim.key) else {
            let relay = Relay { runner: claim.id, terms, passes: 0, parked: Parked::default() };
            self.0.insert(claim.key.clone(), relay);
            return None;
        };
        if relay.terms != terms {
            return None;
        }
        let (parked, must_ask) = oneshot::channel();
        relay.parked.push(Heir { claim: claim.clone(), _parked: parked });
        Some(must_ask)
    }

    /// Who shall have it when this claim is given back; nobody when it is the others' turn.
    pub(super) fn heir_of(&mut self, claim: &Claim) -> Option<Heir> {
        let relay = self.0.get_mut(&claim.key).filter(|relay| relay.runner == claim.id)?;
        if relay.passes >= PASSES {
            return None;
        }
        let heir = relay.parked.pop()?;
        (relay.runner, relay.passes) = (heir.claim.id, relay.passes + 1);
        Some(heir)
    }

    /// The claim that the parked ones wait for.
    pub(super) fn runner(&self, key: &Key) -> Option<ClaimId> {
        self.0.get(key).map(|relay| relay.runner)
    }

    /// Whether the store has never heard of the claim, and now never will.
    pub(super) fn leave(&mut self, claim: &Claim) -> bool {
        self.0.get_mut(&claim.key).is_some_and(|relay| relay.parked.remove(&claim.id))
    }

    /// The claim is over. If it was the one that asks, the next one does.
    pub(super) fn ended(&mut self, claim: &Claim) {
        let Some(relay) = self.0.get_mut(&claim.key).filter(|relay| relay.runner == claim.id) else { return };
        match relay.parked.pop() {
            Some(next) => (relay.runner, relay.passes) = (next.claim.id, 0),
            None => drop(self.0.remove(&claim.key)),
        }
    }
}

/// Whether nobody could tell the claim from another that took over its hold.
pub(super) fn can_be_passed(claim: &Claim, info: &Info) -> bool {
    claim.order == Order::Barging
        && claim.if_busy == IfBusy::Queue
        && claim.units.least() == claim.limit
        && claim.lock_delay.is_zero()
        && claim.value.is_empty()
        && claim.count.is_none()
        && info.capabilities.contains(&Capability::Owner)
}
