//! Who believes to hold what, and whether that can be true.
//!
//! A belief lasts for as long as its guard's signal says so, which can be asked at any moment. More units can only
//! be believed in at the moment at which a belief begins or grows, so that is when everybody is asked: exact, and
//! without keeping intervals. Beside that each belief is held against the store's own account.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{Guard, Loss, LossSignal, Snapshot};

use crate::setup::Spot;
use crate::trace::Who;
use crate::world::{State, World};

/// How long a client needs to withdraw a claim whose future nobody polls: its calls, a waiter's lease, and a renewal from
/// before that, which is as late as its process was stopped. The withdrawal can be lost; then the lease ends the claim.
const LONGEST_UNPOLLED: Duration = Duration::from_secs(12);

#[derive(Debug)]
pub(crate) struct Belief {
    /// The attempt that began it, and the label of its claim.
    pub(crate) attempt: u64,
    pub(crate) spot: Spot,
    signal: LossSignal,
    units: u64,
    token: u64,
    /// When its `max_hold` is over on every clock.
    ends: Option<Duration>,
    /// How long it may believe after it was evicted: a fixed lease is not renewed, so a hint that is lost is all.
    lease: Duration,
    /// A change of its units is under way: the store may be ahead of us.
    changing: bool,
    /// When an administrator ended it: until its guard hears of that, it believes what is not so.
    evicted: Option<Duration>,
}

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) who: Who,
    pub(crate) attempt: u64,
    pub(crate) spot: Spot,
    /// On behalf of an owner, who may hold it already.
    pub(crate) has_owner: bool,
    /// For how long at most, on its own clock.
    pub(crate) max_hold: Option<Duration>,
    /// Its lease is not longer than this: the longest that a hold can outlive the store's word of it.
    pub(crate) lease: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Beliefs {
    held: Vec<Belief>,
    /// Signals that have said that it is over.
    over: Vec<LossSignal>,
    /// The attempts whose holds an administrator ended, with which token and when: perhaps before they knew of them.
    evicted: Vec<(u64, u64, Duration)>,
    /// Nobody may be granted the job before this.
    job_rests_until: Duration,
}

impl World {
    /// A guard was handed out to `asker`. Says by which attempt it is known: its own, or that of the hold that its
    /// owner joined.
    pub(crate) fn granted(&self, asker: &Asker, guard: &Guard, units: u64) -> u64 {
        let &Asker { who, attempt, spot, .. } = asker;
        let (token, now) = (guard.token(), self.now());
        self.note(who, "holds, token", Some(spot), attempt, token);
        if !guard.is_valid() {
            self.violated(format!("attempt {attempt} got a guard that was lost already"));
        }
        self.look(spot);
        let known = {
            let mut state = self.state();
            state.attempts.over(attempt);
            state.coverage.grants += 1;
            let same = |b: &&Belief| asker.has_owner && b.spot == spot && b.token == token;
            if let Some(outer) = state.beliefs.held.iter().find(same).map(|belief| belief.attempt) {
                state.coverage.joins += 1;
                outer
            } else {
                state.copies.guarded(attempt);
                let signal = guard.signal();
                let (changing, evicted) = (false, state.beliefs.evicted_at(attempt, token));
                // Who was evicted before it knew that it held says nothing about the order of grants.
                if evicted.is_none() {
                    state.attempts.granted(attempt, token, units, now);
                }
                let ends = asker.max_hold.map(|length| now + length.mul_f64(1.2));
                let lease = asker.lease;
                let belief = Belief { ends, lease, attempt, spot, signal, units, token, changing, evicted };
                state.beliefs.held.push(belief);
                attempt
            }
        };
        let rests = {
            let state = self.state();
            // Who was evicted before it heard of its grant began before the rest did.
            let is_evicted = state.beliefs.evicted_at(attempt, token).is_some();
            // A clock that jumped has had its rest.
            !is_evicted && state.coverage.jumps == 0 && now < state.beliefs.job_rests_until
        };
        if spot == Spot::JOB && rests {
            self.violated(format!("attempt {attempt} runs the job before its time of rest is over"));
        }
        self.look(spot);
        known
    }

    /// A future is polled again that was left alone: meanwhile its claim may have held, but not for long.
    pub(crate) fn remembered(&self, asker: &Asker) {
        let &Asker { who, attempt, spot, .. } = asker;
        self.note(who, "is polled again", Some(spot), attempt, 0);
        self.count(|coverage| coverage.forgotten += 1);
        let label = attempt.to_string();
        let seen = self.inspect(spot);
        let held = seen.iter().flat_map(|seen| &seen.holders).find(|holder| holder.label == label);
        let most = LONGEST_UNPOLLED + asker.lease;
        if let Some(held_for) = held.map(|holder| holder.held_for).filter(|held_for| *held_for > most) {
            self.violated(format!(
                "attempt {attempt} has held for {held_for:?}, and nobody polled its future"
            ));
        }
    }

    /// Its units are about to change; from now on no more than `least` of them are believed in.
    pub(crate) fn changing(&self, attempt: u64, least: u64) {
        if let Some(belief) = self.state().beliefs.get_mut(attempt) {
            (belief.units, belief.changing) = (belief.units.min(least), true);
        }
    }

    /// Its units have changed.
    pub(crate) fn changed(&self, who: Who, attempt: u64, guard: &Guard, units: u64) {
        let spot = {
            let mut state = self.state();
            let Some(belief) = state.beliefs.get_mut(attempt) else { return };
            (belief.units, belief.changing) = (units, false);
            belief.spot
        };
        self.note(who, "has other units, token", Some(spot), attempt, guard.token());
        self.seen(attempt, guard);
        self.look(spot);
    }

    /// The guard is looked at: its token never goes back.
    pub(crate) fn seen(&self, attempt: u64, guard: &Guard) {
        let token = guard.token();
        let before = match self.state().beliefs.get_mut(attempt) {
            Some(belief) => std::mem::replace(&mut belief.token, token),
            None => return,
        };
        if token < before {
            self.violated(format!("the token of attempt {attempt} went back from {before} to {token}"));
        }
    }

    /// An administrator is about to end it.
    pub(crate) fn evicting(&self, attempt: u64, token: u64) {
        let now = self.now();
        let mut state = self.state();
        state.coverage.evictions += 1;
        state.beliefs.evicted.push((attempt, token, now));
        if let Some(belief) = state.beliefs.get_mut(attempt) {
            belief.evicted.get_or_insert(now);
        }
        state.attempts.ended(attempt, now);
    }

    /// Whether any of these was evicted at some time, also while its release was under way.
    pub(crate) fn was_evicted(&self, attempts: &[u64]) -> bool {
        let state = self.state();
        attempts.iter().any(|attempt| state.beliefs.evicted.iter().any(|(number, ..)| number == attempt))
    }

    /// The job was given back in good order: nobody starts it before this.
    pub(crate) fn job_rests_until(&self, at: Duration) {
        self.state().beliefs.job_rests_until = at;
    }

    /// Asks everybody who believes to hold this, and the store.
    pub(crate) fn look(&self, spot: Spot) {
        let (seen, now) = (self.inspect(spot), self.now());
        let complaint = {
            let mut state = self.state();
            let spurious = state.sweep(now);
            spurious.or_else(|| state.beliefs.judge(spot, seen.as_ref(), now))
        };
        if let Some(complaint) = complaint {
            self.violated(complaint);
        }
    }
}

impl State {
    /// Puts the beliefs that have ended aside; complains about one that the store is blamed for without cause.
    fn sweep(&mut self, now: Duration) -> Option<String> {
        let Self { attempts, beliefs: Beliefs { held, over, evicted, .. }, coverage, .. } = self;
        let mut complaint = None;
        held.retain(|belief| {
            let Some(loss) = belief.signal.lost().now_or_never() else { return true };
            coverage.lost(loss);
            attempts.ended(belief.attempt, now);
            over.push(belief.signal.clone());
            if loss == Loss::Gone && !evicted.iter().any(|(number, ..)| *number == belief.attempt) {
                complaint = Some(format!("attempt {} is told that it is gone, and is not", belief.attempt));
            }
            false
        });
        complaint
    }
}

impl Beliefs {
    fn get_mut(&mut self, attempt: u64) -> Option<&mut Belief> {
        self.held.iter_mut().find(|belief| belief.attempt == attempt)
    }

    /// When an administrator ended this grant, if that happened.
    fn evicted_at(&self, attempt: u64, token: u64) -> Option<Duration> {
        let same = |(number, with, _): &&(u64, u64, Duration)| (*number, *with) == (attempt, token);
        self.evicted.iter().find(same).map(|(_, _, at)| *at)
    }

    /// The loss of a lock is final.
    pub(crate) fn revived(&self) -> usize {
        self.over.iter().filter(|signal| !signal.is_lost()).count()
    }

    fn judge(&self, spot: Spot, seen: Option<&Snapshot>, now: Duration) -> Option<String> {
        let here = || self.held.iter().filter(|belief| belief.spot == spot);
        let late = here().find(|b| b.evicted.is_some_and(|at| now > at + b.lease));
        if let Some(belief) = late {
            return Some(format!("attempt {} was evicted long ago and still believes", belief.attempt));
        }
        if let Some(belief) = here().find(|b| b.ends.is_some_and(|at| now > at)) {
            return Some(format!("attempt {} believes for longer than its max_hold", belief.attempt));
        }
        let sound = || here().filter(|belief| belief.evicted.is_none());
        let units: u64 = sound().map(|belief| belief.units).sum();
        if units > spot.limit() {
            let who: Vec<u64> = sound().map(|belief| belief.attempt).collect();
            return Some(format!("{units} units of {} are believed in by attempts {who:?}", spot.name()));
        }
        for belief in sound().filter(|belief| !belief.changing) {
            let label = belief.attempt.to_string();
            // The last one: what the attempt lost before may keep its units for the lock delay.
            let holds = seen.and_then(|seen| seen.holders.iter().rfind(|holder| holder.label == label));
            let held = holds.map_or(0, |holder| holder.units);
            if held < belief.units {
                return Some(format!(
                    "attempt {} believes in {} units of {}, the store says {held}",
                    belief.attempt,
                    belief.units,
                    spot.name()
                ));
            }
        }
        None
    }
}
