//! One hold, and the guards that share it.
//!
//! An owner may have several guards of one hold. They are counted here and not by their `Arc`: whoever looks at a hold
//! keeps it in memory for a moment without being a guard of it.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::claim::Claim;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, Loss, Stage};
use crate::keeper::{Leaving, Lifeline};
use crate::mutant::Mutant;

/// The hold itself: given back when the last of its guards is gone.
pub(crate) struct Hand {
    pub(crate) life: Arc<Lifeline>,
    pub(crate) claim: Claim,
    pub(crate) hold: Arc<Hold>,
    /// Until when nobody else may have it, even after the release.
    pub(crate) keep_until: OnceLock<Moment>,
    guards: Mutex<Guards>,
}

#[derive(Debug)]
struct Guards {
    count: usize,
    /// One of them is changing all of it, or tried to and the outcome is not known: nobody joins.
    is_closed: bool,
    /// How many changes were asked for.
    changes: u64,
}

impl Hand {
    fn lock(&self) -> MutexGuard<'_, Guards> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.hold.stage() == Stage::Held
    }

    /// Which store it is held on.
    pub(crate) fn store(&self) -> usize {
        self.life.0.store_id()
    }

    /// How many guards may still rely on it.
    pub(crate) fn guards(&self) -> usize {
        if self.is_valid() { self.lock().count } else { 0 }
    }

    /// One guard more of a hold of this many units; `None` when it has others, is going, or is being changed.
    pub(crate) fn join(self: &Arc<Self>, units: u64) -> Option<Share> {
        let mut guards = self.lock();
        // The units are looked at under the lock: a change of them closes the hold first.
        let lives = (guards.count > 0 && self.is_valid()) || Mutant::JoinsADyingHold.lives();
        let may_join = lives && !guards.is_closed && self.hold.units() == units;
        guards.count += usize::from(may_join);
        may_join.then(|| Share { hand: self.clone(), has_left: false })
    }

    /// Lets nobody join from here on, so that the only guard may change what is held.
    ///
    /// # Errors
    /// `Invalid` when there are other guards, which would go on believing in what was.
    pub(crate) fn close(&self) -> Result<()> {
        let mut guards = self.lock();
        if guards.count > 1 {
            let message = "held several times by its owner: release the other guards first";
            return Err(Error::new(ErrorKind::Invalid, message).on(&self.claim.key));
        }
        guards.is_closed = true;
        Ok(())
    }

    /// The change is made, or surely was not: others may join again.
    pub(crate) fn open(&self) {
        self.lock().is_closed = false;
    }

    /// The number of the next change, by which the store tells a late copy of an older one.
    pub(crate) fn next_change(&self) -> u64 {
        let mut guards = self.lock();
        guards.changes += 1;
        guards.changes
    }

    /// Takes the claim out of the renewals; what is left is to tell the store.
    fn part(&self) -> Leaving {
        let leaving = Leaving::new(self.life.0.clone(), &self.claim, &self.hold);
        if !Mutant::ReleaseEndsNothing.lives() && !Mutant::ReleaseRacesRenewal.lives() {
            self.hold.end(Loss::Released);
        }
        // What was changed, or may have been, is not what the next one asked for. A holder that was asked to release
        // gives way to other clients, not to a task of its own.
        let to_others = self.lock().changes > 0 || self.hold.is_asked();
        let leaving = if to_others { leaving.for_nobody() } else { leaving };
        leaving.keep_until(self.keep_until.get().copied())
    }
}

impl fmt::Debug for Hand {
    /// Without the client and its store: a guard in a message is about its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hand = f.debug_struct("Hand");
        hand.field("key", &self.claim.key).field("token", &self.hold.token()).finish_non_exhaustive()
    }
}

/// What one guard has of a hold: counted, and given up once.
#[derive(Debug)]
pub(crate) struct Share {
    hand: Arc<Hand>,
    has_left: bool,
}

impl Share {
    /// All of a new hold.
    pub(crate) fn new(life: Arc<Lifeline>, claim: Claim, hold: Arc<Hold>) -> Self {
        let guards = Mutex::new(Guards { count: 1, is_closed: false, changes: 0 });
        let hand = Hand { life, claim, hold, keep_until: OnceLock::new(), guards };
        Self { hand: Arc::new(hand), has_left: false }
    }

    pub(crate) fn hand(&self) -> &Arc<Hand> {
        &self.hand
    }

    /// Gives it up. Says what is left to do when it was the last one.
    pub(crate) fn leave(&mut self) -> Option<Leaving> {
        if std::mem::replace(&mut self.has_left, true) {
            return None;
        }
        let was_last = {
            let mut guards = self.hand.lock();
            guards.count -= 1;
            guards.count == 0
        };
        was_last.then(|| self.hand.part())
    }
}

impl Deref for Share {
    type Target = Hand;
    fn deref(&self) -> &Hand {
        &self.hand
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !Mutant::DropLeaks.lives() {
            drop(self.leave());
        }
    }
}
