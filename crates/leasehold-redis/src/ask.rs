//! The verbs of a store as calls of scripts: which keys, which arguments.

use std::time::Duration;

use leasehold_core::{Change, Claim, Error, ErrorKind, Extend, IfBusy, Key, Order, Result};

use crate::names;
use crate::pack::{Pack, millis};
use crate::script::{self, Ack, Call, Script};

/// The largest number that a script can count with, and some room to count on.
const LARGEST: u64 = (1 << 53) - (1 << 40);
/// In a column: a time that never comes.
const NEVER: u64 = 1 << 53;
/// What kind of claim it is: plain and all that there is, plain and some of it, any other.
const WHOLE: &[u8] = b"w";
const SOME: &[u8] = b"s";
const OTHER: &[u8] = b"o";

/// Whether the server is alone or part of a cluster: one fence for everything, or one per slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fences {
    One,
    PerSlot,
}

impl Fences {
    /// Asks for units, with a token above all that this client has `seen`.
    pub(crate) fn claim(self, claim: &Claim, seen: u64) -> Result<Call> {
        let mut call = self.call(&script::CLAIM, &claim.key, Ack::Needed);
        call.keys.push(names::refused(&claim.key, &claim.id));
        call.args.extend(packed(claim, seen)?);
        call.joins = claim.quorum.is_none();
        Ok(call)
    }

    /// Renews claims whose locks are in one slot, or any on a single server.
    pub(crate) fn renew<'a>(self, claims: impl Iterator<Item = &'a Claim>) -> Option<Call> {
        let mut claims = claims.peekable();
        let mut call = self.call(&script::RENEW, &claims.peek()?.key, Ack::Needed);
        call.keys.truncate(1);
        for claim in claims {
            call.keys.push(names::lock(&claim.key));
            let lease = match claim.extend {
                Extend::Lease => claim.lease.map_or(NEVER, millis),
                Extend::Nothing => 0,
            };
            let mut pack = Pack::new().raw(claim.id.as_bytes()).column(lease);
            if let Some(terms) = claim.quorum {
                pack = pack.raw(millis(terms.keep).to_string().as_bytes());
            }
            call.args.push(pack.done());
        }
        Some(call)
    }

    /// Changes a claim.
    pub(crate) fn amend(self, claim: &Claim, change: &Change, seen: u64) -> Result<Call> {
        let mut call = self.call(&script::AMEND, &claim.key, Ack::Needed);
        call.args.extend(packed(claim, seen)?);
        let word = |word: &str| Pack::new().bytes(word.as_bytes());
        let pack = match change {
            // More than any limit is refused, however much more it is.
            Change::Units { to, op } => word("units").number(*to.min(&LARGEST)).bytes(&op.to_be_bytes()),
            Change::Give { n, op, token } => {
                word("give").number(*n.min(&LARGEST)).bytes(&op.to_be_bytes()).number(*token)
            }
            Change::Value { to, op } => word("value").bytes(to).bytes(&op.to_be_bytes()),
            Change::Owner { refuse_for, .. } => word("owner").time(*refuse_for),
            Change::Tail(length) => word("tail").time(*length),
            Change::Limit(limit) => word("limit").number(exact(*limit, "limit", &claim.key)?),
            Change::Ask(token) => word("ask").number(*token),
        };
        call.args.push(pack.done());
        if let Change::Limit(_) = change {
            call.keys.push(names::refused(&claim.key, &claim.id));
        }
        if let Change::Owner { to: heir, .. } = change {
            call.keys.push(names::refused(&claim.key, &heir.id));
            call.keys.push(names::refused(&claim.key, &claim.id));
            call.args.extend(packed(heir, 0)?);
        }
        Ok(call)
    }

    /// Gives back.
    pub(crate) fn release(self, claim: &Claim, refuse_for: Option<Duration>) -> Call {
        // After a failover the lease ends a claim whose release was lost. It does not restore a lost mark, and a claim
        // without a lease would stay.
        let is_lasting = refuse_for.is_some() || claim.lease.is_none();
        let ack = if is_lasting { Ack::Needed } else { Ack::Free };
        let mut call = self.call(&script::RELEASE, &claim.key, ack);
        call.args.push(claim.id.as_bytes().to_vec());
        call.joins = refuse_for.is_none();
        if let Some(length) = refuse_for {
            call.keys.push(names::refused(&claim.key, &claim.id));
            call.args.push(millis(length).to_string().into_bytes());
        }
        call
    }

    /// Ends somebody's hold.
    pub(crate) fn evict(self, key: &Key, token: u64) -> Call {
        let mut call = self.call(&script::EVICT, key, Ack::Needed);
        call.args.push(token.to_string().into_bytes());
        call
    }

    /// Looks at locks in one slot, or at any on a single server.
    pub(crate) fn inspect<'a>(self, keys: impl Iterator<Item = &'a Key>) -> Option<Call> {
        let mut keys = keys.peekable();
        let mut call = self.call(&script::INSPECT, keys.peek()?, Ack::Free);
        call.keys = keys.map(names::lock).collect();
        Some(call)
    }

    /// A call that names the fence and the lock.
    fn call(self, script: &'static Script, key: &Key, ack: Ack) -> Call {
        let lock = names::lock(key);
        let (slot, fence) = match self {
            Self::One => (0, names::fence()),
            Self::PerSlot => (names::slot(&lock), names::fence_in(names::slot(&lock))),
        };
        let (args, members) = (Vec::new(), Vec::new());
        Call { script, slot, keys: vec![fence, lock], args, ack, joins: false, members }
    }
}

/// Releases and then claims on a single server, as one call that takes the short way of each.
pub(crate) fn many(members: Vec<Call>) -> Call {
    let releases = members.iter().filter(|call| call.gives_back()).count();
    let (keys, args) = (vec![names::fence()], vec![releases.to_string().into_bytes()]);
    Call { script: &script::MANY, slot: 0, keys, args, ack: Ack::Free, joins: false, members }
}

/// The claim in three parts: as it is written up to its limit, what of it is stored as it is here, and what else is
/// asked. See `format.lua`.
fn packed(claim: &Claim, seen: u64) -> Result<[Vec<u8>; 3]> {
    let Claim { key, id, limit, units, lease, patience, lock_delay, inbox, label, value, .. } = claim;
    // A quorum's tokens are counted per key, and proposed by it.
    let seen = if claim.quorum.is_some() { 0 } else { seen };
    let above = exact(claim.token_above.max(seen), "token to exceed", key)?;
    let count = claim.count.map(|count| exact(count, "count", key)).transpose()?;
    let (most, least) = (units.most().min(LARGEST), units.least().min(LARGEST));
    let limit = exact(*limit, "limit", key)?;
    // A latch is kept for longer than it lives, which only the rule knows.
    let is_plain = claim.quorum.is_none()
        && claim.count.is_none()
        && most == least
        && most <= limit
        && lock_delay.is_zero();
    let kind = match is_plain {
        true if most == limit => WHOLE,
        true => SOME,
        false => OTHER,
    };
    let asked = Pack::new().raw(id.as_bytes()).raw(kind);
    let asked = asked.column(lease.map_or(NEVER, millis)).column(most).column(limit);
    let stored = Pack::new()
        .raw(names::address(*inbox).as_bytes())
        .time(*patience)
        .time(*lock_delay)
        .bytes(label.as_bytes())
        .bytes(value)
        .maybe(count)
        // No operation was counted yet, and nobody asked for it.
        .bytes(&[])
        .flag(false);
    let more = Pack::new()
        .column(above)
        .column(millis(*patience))
        .raw(if claim.if_busy == IfBusy::Leave { b"l" } else { b"q" })
        .number(most)
        .number(least)
        .flag(claim.order == Order::Barging)
        .maybe(claim.quorum.map(|terms| millis(terms.keep)))
        .maybe(claim.quorum.map(|terms| millis(terms.min_age)))
        .flag(claim.quorum.is_some_and(|terms| terms.again));
    Ok([asked.done(), stored.done(), more.done()])
}

/// Refuses what the server could not count with.
fn exact(number: u64, what: &str, key: &Key) -> Result<u64> {
    if number <= LARGEST {
        return Ok(number);
    }
    let message = format!("a {what} of {number} is out of range: Redis counts to {LARGEST}");
    Err(Error::new(ErrorKind::Invalid, message).on(key))
}
