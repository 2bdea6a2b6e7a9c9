//! The same random sequence of operations on the model and on a store must give the same answers.
//!
//! Answers are compared without what may differ: seats and tokens are replaced by their rank, times are left
//! out. Time itself is one of the operations: whatever is short is over after it, on both sides. Where sessions carry the
//! claims the model has sessions too, and every sequence is another client: it would renew what is another's.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::sessions::Sessions;
use leasehold_core::{
    Answer, BootClock, Change, Claim, ErrorKind, Extend, Key, Leases, Memory, Result, Snapshot, Store,
};
use tokio::time::Instant;

use crate::scene::{GLANCE, SLACK, Scene};
use crate::verdict::{Stop, Verdict};
use plan::{Act, Plan};

/// How long a sequence may wait for things to be over: where leases are long it ends earlier.
const PATIENCE: Duration = Duration::from_secs(12);

/// How often a sequence is begun again because the store gave no answer, which a busy machine can cause.
const TRIES: u32 = 3;

/// How the answer of a store begins that did not answer.
const UNANSWERED: &str = "no answer: ";

/// How a sequence ended in which no answer differed.
enum Played {
    Whole,
    /// The store did not answer. What it made of the request is unknown, so nothing can be compared after it.
    Unanswered(String),
}

/// Plays one random sequence on both.
pub(crate) async fn play(scene: &Scene, seed: u64, steps: usize) -> Verdict {
    let mut problem = String::new();
    for _ in 0..TRIES {
        match play_once(scene, seed, steps).await? {
            Played::Whole => return Ok(()),
            Played::Unanswered(why) => problem = why,
        }
    }
    Err(Stop::fail(format_args!("seed {seed}: {problem}")))
}

async fn play_once(scene: &Scene, seed: u64, steps: usize) -> Verdict<Played> {
    let another;
    let (scene, model): (_, Arc<dyn Store>) = match scene.info().leases {
        Leases::PerClaim => (scene, Arc::new(Memory::new())),
        Leases::Shared => {
            another = match scene.another().await {
                Ok(another) => another,
                Err(stop) => return Ok(Played::Unanswered(stop.to_string())),
            };
            (&another, Arc::new(Sessions::new(Arc::new(BootClock))))
        }
    };
    let key = scene.key();
    let mut sides = [Side::new(model, key.clone()), Side::new(scene.store.clone(), key.clone())];
    let mut plan = Plan::new(seed, key, scene);
    let (mut played, mut waited) = (Vec::new(), Duration::ZERO);
    for step in 0..steps {
        let act = plan.next();
        played.push(format!("{act:?}"));
        if let Act::Lapse(length) = act {
            waited += length;
            if waited > PATIENCE.max(length) {
                return Ok(Played::Whole);
            }
            tokio::time::sleep(length).await;
            let probes = plan.probes();
            for side in &sides {
                side.notice(&probes).await;
            }
            let give_up = Instant::now() + SLACK;
            // On a session the next holder writes its grant itself, a moment after a tail or a lease has ended.
            while scene.info().leases == Leases::Shared && Instant::now() < give_up {
                let [model, store] = &mut sides;
                if model.look().await == store.look().await {
                    break;
                }
                tokio::time::sleep(GLANCE).await;
            }
            continue;
        }
        let mut said = Vec::new();
        let start = Instant::now();
        for side in &mut sides {
            let answer = side.perform(&act).await;
            said.push((answer, side.look().await));
        }
        if plan.must_lapse() && start.elapsed() > scene.lease() / 2 {
            // The machine is slow, and what is short may be over on one side only: from here on nothing can be compared.
            return Ok(Played::Whole);
        }
        let unanswered = |said: &&String| said.starts_with(UNANSWERED);
        if let Some(why) = said.iter().flat_map(|(answer, look)| [answer, look]).find(unanswered) {
            return Ok(Played::Unanswered(why.clone()));
        }
        let give_up = Instant::now() + SLACK;
        // Who is next may have to write that itself, on its own session: a moment after the answer.
        while scene.info().leases == Leases::Shared && said[0].1 != said[1].1 && Instant::now() < give_up {
            tokio::time::sleep(GLANCE).await;
            said[1].1 = sides[1].look().await;
        }
        if said[0] != said[1] {
            let last = &played[played.len().saturating_sub(12)..];
            return Err(Stop::fail(format_args!(
                "seed {seed}, step {step}: the model says\n  {:?}\nand the store\n  {:?}\nafter\n  {}",
                said[0],
                said[1],
                last.join("\n  ")
            )));
        }
    }
    Ok(Played::Whole)
}

/// The model, or the store.
struct Side {
    store: Arc<dyn Store>,
    key: Key,
    seats: Ranks,
    tokens: Ranks,
    /// A session may be renewed by whatever happens on it, or not.
    tells_extension: bool,
}

impl Side {
    fn new(store: Arc<dyn Store>, key: Key) -> Self {
        let tells_extension = store.info().leases == Leases::PerClaim;
        Self { store, key, seats: Ranks::default(), tokens: Ranks::default(), tells_extension }
    }

    /// Performs an operation and says what came of it, comparably.
    async fn perform(&mut self, act: &Act) -> String {
        match act {
            Act::Claim(claim) => self.told(self.store.claim(claim).await),
            Act::Renew(claims) => self.renewed(claims).await,
            Act::Amend(claim, change) => self.told(self.store.amend(claim, change).await),
            Act::Release(claim, refuse_for) => plain(self.store.release(claim, *refuse_for).await),
            Act::Give(claim, n, op, place) => {
                let change = Change::Give { n: *n, op: *op, token: self.latch(*place).await };
                self.told(self.store.amend(claim, &change).await)
            }
            Act::Evict(place) => {
                let token = self.holder(*place).await;
                plain(self.store.evict(&self.key, token).await)
            }
            Act::Lapse(_) => String::new(),
        }
    }

    /// Lets it notice what is over by asking for everything. A store that sweeps may have noticed before that, at any time.
    async fn notice(&self, probes: &[Claim]) {
        for everything in probes {
            // Another limit is a conflict; then the next probe has the right one.
            if matches!(self.store.claim(everything).await, Ok(Answer::Granted(_))) {
                let _ = self.store.release(everything, None).await;
            }
        }
    }

    async fn renewed(&mut self, claims: &[Claim]) -> String {
        let mut renewed = self.store.renew(claims).await;
        for _ in 1..TRIES {
            // MySQL waits for no row, and a sweep may have locked this one. The keeper repeats such a renewal, too.
            let may_extend = self.tells_extension && claims.iter().all(|claim| claim.extend == Extend::Lease);
            if may_extend && renewed.as_ref().is_ok_and(|answers| answers.iter().any(is_unextended)) {
                renewed = self.store.renew(claims).await;
            }
        }
        match renewed {
            Ok(answers) => answers.into_iter().map(|answer| self.told(Ok(answer)) + " ").collect(),
            Err(error) => plain::<()>(Err(error)),
        }
    }

    /// The token of the holder at this place among the holders, or one that nobody has.
    async fn holder(&self, place: usize) -> u64 {
        let seen = self.store.inspect(&self.key).await.ok().flatten();
        seen.and_then(|seen| seen.holders.get(place).map(|holder| holder.token)).unwrap_or(0)
    }

    /// The same if it is a latch: whether a token is that of another hold need not be known.
    async fn latch(&self, place: usize) -> u64 {
        let seen = self.store.inspect(&self.key).await.ok().flatten();
        let holder = seen.and_then(|seen| seen.holders.into_iter().nth(place));
        holder.filter(|holder| holder.count.is_some()).map_or(0, |holder| holder.token)
    }

    fn told(&mut self, answer: Result<Answer>) -> String {
        match answer {
            Ok(Answer::Granted(grant)) => {
                let (seat, token) = (self.seats.of(grant.seat), self.tokens.of(grant.token));
                let extended = self.tells_extension && grant.lease.is_some();
                format!("granted {} units, seat {seat}, token {token}, extended {extended}", grant.units)
            }
            Ok(Answer::Waiting(place)) => {
                let seat = self.seats.of(place.seat);
                let extended = self.tells_extension && place.lease.is_some();
                format!(
                    "waiting, seat {seat}, {} ahead, holds {}, extended {extended}",
                    place.ahead, place.held
                )
            }
            other => plain(other),
        }
    }

    /// How the key looks, comparably.
    async fn look(&mut self) -> String {
        match self.store.inspect(&self.key).await {
            Ok(Some(seen)) => self.seen(&seen),
            other => plain(other.map(|_| "free")),
        }
    }

    fn seen(&mut self, seen: &Snapshot) -> String {
        let mut text = format!("limit {}/{}", seen.effective_limit, seen.limit);
        for holder in &seen.holders {
            let (seat, token) = (self.seats.of(holder.seat), self.tokens.of(holder.token));
            let (value, count) = (&holder.value, holder.count);
            text += &format!(" [{} units, seat {seat}, token {token}, {value:?}, {count:?}]", holder.units);
        }
        for waiter in &seen.waiters {
            text += &format!(" ({} units, seat {})", waiter.units, self.seats.of(waiter.seat));
        }
        text
    }
}

/// Numbers in the order in which they were first seen: what seats and tokens of two stores have in common.
#[derive(Debug, Default)]
struct Ranks(BTreeMap<u64, usize>);

impl Ranks {
    fn of(&mut self, number: u64) -> usize {
        let next = self.0.len();
        *self.0.entry(number).or_insert(next)
    }
}

fn is_unextended(answer: &Answer) -> bool {
    match answer {
        Answer::Granted(grant) => grant.lease.is_none(),
        Answer::Waiting(place) => place.lease.is_none(),
        _ => false,
    }
}

fn plain<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
            format!("{UNANSWERED}{error}")
        }
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// How long a lapse takes beyond what is to be over.
pub(crate) const MARGIN: Duration = Duration::from_millis(50);
