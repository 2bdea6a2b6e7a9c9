//! Every attempt to acquire something: what order and tokens are judged by, when all is over.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use leasehold_conformance::history::{Event, Rules, Step, check};
use leasehold_core::ClaimId;

use crate::setup::{CALL_TIMEOUT, Scene, Spot};

/// Whether it can be said who came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fairness {
    Fair,
    /// Barging, or a hand-over: past everybody who waits.
    Past,
}

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) spot: Spot,
    fairness: Fairness,
    asked: Duration,
    /// The last claim that was made for it.
    claim: Option<ClaimId>,
    /// The seat of that claim, and since when it has it.
    queued: Option<(u64, Duration)>,
    granted: Option<(Duration, u64, u64)>,
    ended: Option<Duration>,
    /// Nobody waits for its outcome any more.
    pub(crate) over: bool,
    /// Its lease is a fixed one, and nobody has extended it by hand.
    is_fixed: bool,
}

/// Attempts by number. A claim carries the number of its attempt as its label.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Vec<Attempt>);

/// The claims that have arrived, and those that were withdrawn before they did.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    arrived: HashSet<ClaimId>,
    withdrawn: HashMap<ClaimId, Duration>,
}

impl Arrivals {
    /// A claim arrives. `true` when it is the first copy of it.
    pub(crate) fn arrives(&mut self, id: ClaimId) -> bool {
        self.arrived.insert(id)
    }

    /// Whether a claim that arrives for the first time must be refused: it was withdrawn before.
    pub(crate) fn must_refuse(&self, id: ClaimId, now: Duration) -> bool {
        // As long as the runtime promises to remember, on a clock that may be fast.
        let promised = (CALL_TIMEOUT * 2).mul_f64(0.9);
        self.withdrawn.get(&id).is_some_and(|at| now < *at + promised)
    }

    pub(crate) fn released(&mut self, id: ClaimId, now: Duration) {
        if !self.arrived.contains(&id) {
            self.withdrawn.entry(id).or_insert(now);
        }
    }
}

impl Attempts {
    pub(crate) fn begin(&mut self, spot: Spot, fairness: Fairness, now: Duration) -> u64 {
        let (claim, queued, granted, ended) = (None, None, None, None);
        let (asked, over, is_fixed) = (now, false, false);
        self.0.push(Attempt { spot, fairness, asked, claim, queued, granted, ended, over, is_fixed });
        self.0.len() as u64 - 1
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Attempt> {
        self.0.get(usize::try_from(number).ok()?)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Attempt> {
        self.0.get_mut(usize::try_from(number).ok()?)
    }

    /// A new claim of the attempt has arrived: whatever place there was before is lost.
    pub(crate) fn claimed(&mut self, number: u64, id: ClaimId) {
        if let Some(attempt) = self.get_mut(number) {
            (attempt.claim, attempt.queued) = (Some(id), None);
        }
    }

    /// A claim holds at once, in this seat: if that is another one, it had lost its place and asked again.
    pub(crate) fn seated(&mut self, number: u64, seat: u64) {
        if let Some(attempt) = self.get_mut(number) {
            attempt.queued = attempt.queued.filter(|(place, _)| *place == seat);
        }
    }

    /// A claim has a place in the queue; the same claim can come to another place, when it lost the first.
    pub(crate) fn queued(&mut self, number: u64, id: ClaimId, seat: u64, now: Duration) {
        let Some(attempt) = self.get_mut(number).filter(|attempt| attempt.claim == Some(id)) else { return };
        if attempt.queued.is_none_or(|(place, _)| place != seat) {
            attempt.queued = Some((seat, now));
        }
    }

    pub(crate) fn granted(&mut self, number: u64, token: u64, units: u64, now: Duration) {
        if let Some(attempt) = self.get_mut(number) {
            (attempt.granted, attempt.ended) = (Some((now, token, units)), None);
        }
    }

    /// Its hold is not believed in any more.
    pub(crate) fn ended(&mut self, number: u64, now: Duration) {
        if let Some(attempt) = self.get_mut(number) {
            attempt.ended.get_or_insert(now);
        }
    }

    /// Whether nothing may extend its lease once that has begun.
    pub(crate) fn is_fixed(&self, number: u64) -> bool {
        self.get(number).is_some_and(|attempt| attempt.is_fixed)
    }

    pub(crate) fn set_fixed(&mut self, number: u64, is_fixed: bool) {
        if let Some(attempt) = self.get_mut(number) {
            attempt.is_fixed = is_fixed;
        }
    }

    pub(crate) fn over(&mut self, number: u64) {
        if let Some(attempt) = self.get_mut(number) {
            attempt.over = true;
        }
    }

    /// What the history checker of the conformance suite makes of it.
    pub(crate) fn violations(&self, scene: &Scene) -> Vec<String> {
        let mut found = Vec::new();
        for spot in Spot::ALL {
            let here = (0..).zip(&self.0).filter(|(_, attempt)| attempt.spot == spot);
            let events: Vec<Event> = here.flat_map(|(number, attempt)| attempt.events(number)).collect();
            // Units that change in the middle of a hold are more than a history can tell: those are watched live.
            let limit = if spot == Spot::READ_WRITE { u64::MAX } else { spot.limit() };
            // A claim for more than there are is passed over, or told so.
            let ordered = spot != Spot::PERMITS || scene.all_permits_fit();
            let rules = Rules { limit, ordered };
            found.extend(check(&events, rules).into_iter().map(|violation| format!("{violation:?}")));
        }
        found
    }
}

impl Attempt {
    fn events(&self, worker: u64) -> Vec<Event> {
        let Some((at, token, units)) = self.granted else { return Vec::new() };
        let event = |at: Duration, step| {
            let at = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
            Event { at, worker, key: self.spot.name().to_owned(), step }
        };
        let mut events = vec![event(self.asked, Step::Asks { units })];
        events.extend(self.queued.map(|(_, at)| event(at, Step::Queued)));
        events.push(event(at, Step::Acquired { token, units, deadline: u64::MAX }));
        if self.fairness == Fairness::Past {
            events.push(event(at, Step::Failed));
        }
        events.extend(self.ended.map(|at| event(at, Step::Releases)));
        events
    }
}
