//! The store that all clients share, with somebody who takes notes.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Answer, Change, Claim, Fut, Inbox, Info, Key, Page, Released, Snapshot, Store, Wakes};

use crate::rounds::{Deed, Shown};
use crate::setup::{Spot, Trouble};
use crate::trace::Who;
use crate::world::World;

#[derive(Clone, Debug)]
pub(crate) struct Spied(pub(crate) Arc<World>);

impl Spied {
    fn raw(&self) -> &dyn Store {
        self.0.raw.store()
    }

    fn note(&self, what: &'static str, claim: &Claim, number: u64) {
        self.0.note(Who::Store, what, spot_of(&claim.key), number_of(claim), number);
    }

    /// The latch that is set again and again, if the key is that one's.
    fn rounds_latch(&self, key: &Key) -> Option<Shown> {
        let spot = spot_of(key).filter(|spot| *spot == Spot::ROUNDS)?;
        Shown::of(self.0.inspect(spot).as_ref())
    }

    /// Judges what a request did to that latch, which was like this before.
    fn judge_rounds(&self, key: &Key, deed: Deed<'_>, before: Option<Shown>) {
        if spot_of(key) != Some(Spot::ROUNDS) {
            return;
        }
        let (after, now) = (self.rounds_latch(key), self.0.now());
        let complaint = self.0.state().rounds.happened(deed, before, after, now);
        complaint.into_iter().for_each(|complaint| self.0.violated(complaint));
    }

    /// What is left of a fixed lease that nothing may extend any more.
    fn fixed_lease(&self, claim: &Claim) -> Option<Duration> {
        let is_settled = {
            let state = self.0.state();
            state.attempts.is_fixed(number_of(claim)) && state.copies.had_begun(claim.id)
        };
        if !is_settled || !self.0.setup.has(Trouble::FixedLeaseLooks) {
            return None;
        }
        let seen = self.0.inspect(spot_of(&claim.key)?)?;
        seen.holders.iter().find(|holder| holder.label == *claim.label)?.lease_left
    }

    fn claimed(&self, claim: &Claim, answer: &Answer) {
        let (number, now) = (number_of(claim), self.0.now());
        let mut state = self.0.state();
        let is_first = state.arrivals.arrives(claim.id);
        if is_first {
            state.attempts.claimed(number, claim.id);
        }
        if let Answer::Granted(grant) = answer {
            state.attempts.seated(number, grant.seat);
        }
        if let Answer::Waiting(place) = answer {
            state.attempts.queued(number, claim.id, place.seat, now);
        }
        let unwanted = state.attempts.get(number).is_some_and(|attempt| attempt.over);
        state.coverage.ghosts += u64::from(unwanted);
        let refuse = is_first && state.arrivals.must_refuse(claim.id, now);
        let seat = match answer {
            Answer::Granted(grant) => Some(grant.seat),
            Answer::Waiting(place) => Some(place.seat),
            _ => None,
        };
        let makes_another = seat.is_some_and(|seat| state.copies.makes_another(claim.id, seat));
        let is_forgotten = makes_another && state.copies.is_forgotten(claim.id, now);
        drop(state);
        if is_forgotten {
            self.0.violated(format!(
                "attempt {number} is over, a late copy of its claim is served, and its client does not withdraw it"
            ));
        }
        if refuse && matches!(answer, Answer::Granted(_) | Answer::Waiting(_)) {
            self.0.violated(format!(
                "the claim of attempt {number} was withdrawn before it arrived, and lives"
            ));
        }
        match answer {
            Answer::Granted(grant) => self.note("granted, token", claim, grant.token),
            Answer::Waiting(place) => self.note("queued, seat", claim, place.seat),
            Answer::Busy => self.note("busy", claim, 0),
            _ => self.note("claim refused", claim, 0),
        }
    }
}

/// The attempt that a claim was made for.
pub(crate) fn number_of(claim: &Claim) -> u64 {
    claim.label.parse().unwrap_or(u64::MAX)
}

fn spot_of(key: &Key) -> Option<Spot> {
    Spot::ALL.into_iter().find(|spot| spot.name() == key.as_str())
}

impl Store for Spied {
    fn info(&self) -> &Info {
        self.raw().info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        self.raw().open(inbox, wakes)
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async move {
            let before = self.rounds_latch(&claim.key);
            let answer = self.raw().claim(claim).await?;
            if claim.count.is_some() {
                self.judge_rounds(&claim.key, Deed::Set(claim), before);
            }
            self.claimed(claim, &answer);
            Ok(answer)
        })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move {
            let before: Vec<_> = claims.iter().map(|claim| self.fixed_lease(claim)).collect();
            let answers = self.raw().renew(claims).await?;
            for (claim, before) in claims.iter().zip(before) {
                // A millisecond: the store counts in those.
                let most = before.map(|left| left + Duration::from_millis(1));
                if most.is_some() && self.fixed_lease(claim) > most {
                    let number = number_of(claim);
                    self.0
                        .violated(format!("a poll extends the fixed lease of attempt {number} at the store"));
                }
            }
            for (claim, answer) in claims.iter().zip(&answers) {
                match answer {
                    Answer::Granted(grant) => self.note("renewed, token", claim, grant.token),
                    Answer::Waiting(place) => self.note("renewed, waits, seat", claim, place.seat),
                    _ => {
                        self.note("renewal finds nothing", claim, 0);
                        self.0.count(|coverage| coverage.reconciliations += 1);
                    }
                }
            }
            Ok(answers)
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move {
            let before = self.rounds_latch(&claim.key);
            let answer = self.raw().amend(claim, change).await?;
            if let Change::Give { op, token, .. } = *change {
                self.judge_rounds(&claim.key, Deed::Count { op, token }, before);
            }
            let what = match change {
                Change::Units { .. } => "amended units",
                Change::Give { .. } => "counted down",
                Change::Value { .. } => "published",
                Change::Owner { .. } => "handed over",
                Change::Tail(_) => "left a tail",
                Change::Limit(_) => "got a limit",
                Change::Ask(_) => "was asked for",
            };
            match &answer {
                Answer::Granted(grant) => self.note(what, claim, grant.units),
                Answer::Left(left) => self.note(what, claim, *left),
                Answer::Waiting(_) => self.note("waits for more units", claim, 0),
                _ => self.note("amend finds nothing", claim, 0),
            }
            Ok(answer)
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(async move {
            let before = self.rounds_latch(&claim.key);
            let found = self.raw().release(claim, refuse_for).await?;
            self.judge_rounds(&claim.key, Deed::Withdraw, before);
            let now = self.0.now();
            self.0.state().arrivals.released(claim.id, now);
            match found {
                Released::Held => self.note("released", claim, 0),
                Released::Waiting => self.note("left the queue", claim, 0),
                Released::Gone => self.note("release finds nothing", claim, 0),
            }
            Ok(found)
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        self.raw().inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        self.raw().list(prefix, cursor)
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(async move {
            let before = self.rounds_latch(key);
            let is_ended = self.raw().evict(key, token).await?;
            self.judge_rounds(key, Deed::Delete, before);
            Ok(is_ended)
        })
    }
}
