//! What to do next: random, but a bit of everything, and the same for the same seed.

use std::time::Duration;

use leasehold_core::{
    Capability, Change, Claim, ClaimId, Extend, IfBusy, Inbox, Info, Key, Leases, Order, Units,
};

use super::MARGIN;
use crate::scene::{LONG, Scene};

/// An operation.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Claim(Claim),
    Renew(Vec<Claim>),
    Amend(Claim, Change),
    Release(Claim, Option<Duration>),
    /// Count the latch at this place among the holders down by this much, with this number.
    Give(Box<Claim>, u64, u64, usize),
    /// Evict the holder at this place.
    Evict(usize),
    /// Wait this long.
    Lapse(Duration),
}

/// A source of operations on one key.
pub(crate) struct Plan {
    random: fastrand::Rng,
    key: Key,
    info: Info,
    inbox: Inbox,
    short: Duration,
    limit: u64,
    claims: Vec<Claim>,
    changes: u64,
    /// The id of the last resize, for a late copy of it. No claim has it.
    resize: Option<ClaimId>,
    /// Something short was touched: time must pass before anything else, or the two sides may disagree about
    /// whether it is over.
    lapse: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64, key: Key, scene: &Scene) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = *random.choice(&[1, 2, 3, 5]).unwrap_or(&1);
        let (info, inbox, short) = (scene.info().clone(), scene.inbox, scene.lease());
        Self {
            random,
            key,
            info,
            inbox,
            short,
            limit,
            claims: Vec::new(),
            changes: 0,
            resize: None,
            lapse: false,
        }
    }

    pub(crate) fn next(&mut self) -> Act {
        if std::mem::take(&mut self.lapse) {
            // What is over is asked about now and then, not all the time: every time costs a lapse.
            let (random, short) = (&mut self.random, self.short);
            self.claims.retain(|claim| !is_short(claim, short) || random.u8(0..3) == 0);
            return Act::Lapse(self.short * 2 + self.info.expiry_slack + MARGIN);
        }
        let act = match self.random.u32(0..100) {
            0..40 => Act::Claim(self.claim()),
            40..55 => self.renew(),
            55..75 => self.amend(),
            75..95 => {
                let refuse_for = self.random.bool().then_some(LONG);
                Act::Release(self.any(), refuse_for)
            }
            _ if self.info.can(Capability::Evict) => Act::Evict(self.random.usize(0..3)),
            _ => self.renew(),
        };
        self.lapse = match &act {
            Act::Claim(claim) | Act::Amend(claim, _) => is_short(claim, self.short),
            Act::Renew(claims) => claims.iter().any(|claim| is_short(claim, self.short)),
            // What is promoted lives on the patience it has left: longer than any sequence.
            Act::Release(..) | Act::Give(..) | Act::Evict(_) | Act::Lapse(_) => false,
        };
        if let Act::Amend(_, Change::Tail(length)) = &act {
            self.lapse |= *length == self.short;
        }
        act
    }

    /// Whether the last operation touched something short, so that time must pass before the next one.
    pub(crate) fn must_lapse(&self) -> bool {
        self.lapse
    }

    /// Claims for everything that would rather leave, one for each limit that the key may have.
    pub(crate) fn probes(&mut self) -> [Claim; 2] {
        [self.limit, self.limit + 1].map(|limit| Claim {
            limit,
            units: Units::Exactly(limit),
            if_busy: IfBusy::Leave,
            order: Order::Fair,
            lease: Some(LONG.min(self.info.max_lease)),
            lock_delay: Duration::ZERO,
            ..self.fresh()
        })
    }

    /// One of the last claims, or a stranger.
    fn any(&mut self) -> Claim {
        let recent = &self.claims[self.claims.len().saturating_sub(8)..];
        let known = self.random.choice(recent).cloned();
        known.unwrap_or_else(|| self.fresh())
    }

    /// An id that no earlier claim had; from the seed, so that a failure can be played again.
    fn id(&mut self) -> ClaimId {
        ClaimId::from_bytes(self.random.u128(1..).to_be_bytes())
    }

    fn fresh(&mut self) -> Claim {
        let most = self.random.u64(1..=self.limit);
        let units = if self.random.u8(0..4) == 0 { Units::UpTo(most) } else { Units::Exactly(most) };
        let mut claim = Claim {
            key: self.key.clone(),
            id: self.id(),
            limit: self.limit,
            units,
            if_busy: IfBusy::Queue,
            order: Order::Fair,
            lease: Some(LONG.min(self.info.max_lease)),
            patience: LONG,
            lock_delay: Duration::ZERO,
            token_above: 0,
            inbox: self.inbox,
            label: "".into(),
            value: [].into(),
            count: None,
            quorum: None,
            round: 0,
            extend: Extend::Lease,
        };
        if self.random.u8(0..4) == 0 {
            claim.if_busy = IfBusy::Leave;
        }
        if self.random.u8(0..5) == 0 {
            claim.order = Order::Barging;
        }
        match self.random.u8(0..20) {
            0 => (claim.lease, claim.patience) = (Some(self.short), self.short),
            // Who waits on a session ends with that.
            1 if self.info.leases == Leases::PerClaim => claim.patience = self.short,
            // Blocks the key for as long as the sequence lasts.
            2 if self.info.can(Capability::LockDelay) && self.random.u8(0..4) == 0 => claim.lock_delay = LONG,
            3 => claim.limit = self.limit + 1,
            _ => {}
        }
        claim
    }

    fn claim(&mut self) -> Claim {
        // A repeat of an earlier claim is a renewal.
        if !self.claims.is_empty() && self.random.u8(0..6) == 0 {
            return self.any();
        }
        let mut claim = self.fresh();
        if self.info.can(Capability::Count) && self.random.u8(0..6) == 0 {
            // A latch lives on no session and never waits. Nobody renews it, and it ends when it is told to.
            (claim.count, claim.lease) = (Some(self.random.u64(1..4)), None);
            (claim.if_busy, claim.patience) = (IfBusy::Leave, LONG);
        }
        if self.info.can(Capability::Value) {
            claim.value = [self.random.u8(..)].into();
        }
        self.claims.push(claim.clone());
        claim
    }

    fn renew(&mut self) -> Act {
        // One renewal is about one session, and short claims live on another than long ones.
        let most = if self.info.leases == Leases::PerClaim { 4 } else { 2 };
        let count = self.random.usize(1..most);
        // Nobody renews a latch.
        let claims: Vec<Claim> =
            (0..count).map(|_| self.any()).filter(|claim| claim.count.is_none()).collect();
        if claims.is_empty() { Act::Renew(vec![self.fresh()]) } else { Act::Renew(claims) }
    }

    fn amend(&mut self) -> Act {
        let claim = self.any();
        let units = self.random.u64(0..=self.limit + 1);
        let change = match self.random.u8(0..12) {
            0..4 if self.info.can(Capability::AmendUnits) => Change::Units { to: units, op: self.op() },
            4..6 if self.info.can(Capability::Count) => {
                // Each side has tokens of its own.
                let (n, op) = (self.random.u64(1..3), self.random.u64(0..6));
                return Act::Give(Box::new(claim), n, op, self.random.usize(0..3));
            }
            6..8 if self.info.can(Capability::Value) => {
                Change::Value { to: [self.random.u8(..)].into(), op: self.op() }
            }
            8 if self.info.can(Capability::Owner) => {
                let heir = if self.random.bool() { self.fresh_heir() } else { self.any() };
                let refuse_for = if self.random.bool() { LONG } else { Duration::ZERO };
                Change::Owner { to: Box::new(heir), refuse_for }
            }
            9 if self.info.can(Capability::Tail) => {
                let length = *self.random.choice(&[Duration::ZERO, self.short]).unwrap_or(&self.short);
                Change::Tail(length)
            }
            10 if self.info.can(Capability::Limit) => Change::Limit(self.random.u64(1..=self.limit + 1)),
            _ => return self.renew(),
        };
        if !matches!(change, Change::Limit(_)) {
            return Act::Amend(claim, change);
        }
        // A resize has an id of its own, and a copy has that of the last one.
        let id = match self.resize {
            Some(id) if self.random.u8(0..4) == 0 => id,
            _ => self.id(),
        };
        self.resize = Some(id);
        Act::Amend(Claim { id, ..claim }, change)
    }

    /// The number of a change: mostly a new one, sometimes that of an old one that comes late.
    fn op(&mut self) -> u64 {
        self.changes += 1;
        self.changes.saturating_sub(if self.random.u8(0..4) == 0 { 2 } else { 0 })
    }

    /// Somebody to hand over to, who goes on as a claim of its own.
    fn fresh_heir(&mut self) -> Claim {
        let heir = Claim {
            lease: Some(LONG.min(self.info.max_lease)),
            patience: LONG,
            lock_delay: Duration::ZERO,
            ..self.fresh()
        };
        self.claims.push(heir.clone());
        heir
    }
}

fn is_short(claim: &Claim, short: Duration) -> bool {
    claim.lease == Some(short) || claim.patience == short
}
