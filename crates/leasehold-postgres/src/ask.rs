//! What a store says to the database: each verb with its values.

use std::time::Duration;

use leasehold_core::{Change, Claim, Extend, IfBusy, Key, Order, QuorumTerms};
use tokio_postgres::types::ToSql;

use crate::names::encode;
use crate::sql::Verb;

/// Lengths beyond this never end: far enough from the end of the range that several can be added.
const LONGEST: u64 = 1 << 59;

/// A value of a statement.
pub(crate) type Value = Box<dyn ToSql + Sync + Send>;

/// One statement with its values.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) values: Vec<Value>,
}

macro_rules! call {
    ($verb:expr, $($value:expr),+ $(,)?) => {
        Call { verb: $verb, values: vec![$(Box::new($value) as Value),+] }
    };
}

pub(crate) fn claim(claim: &Claim) -> Call {
    let terms = claim.quorum.as_ref();
    call!(
        Verb::Claim,
        encode(claim.key.as_str()),
        claim.id.as_bytes().to_vec(),
        number(claim.limit),
        number(claim.units.most()),
        number(claim.units.least()),
        claim.if_busy == IfBusy::Leave,
        claim.order == Order::Barging,
        claim.lease.map(millis),
        millis(claim.patience),
        millis(claim.lock_delay),
        number(claim.token_above),
        claim.inbox.0.cast_signed(),
        encode(&claim.label),
        claim.value.to_vec(),
        claim.count.map(number),
        keep(claim),
        terms.map(|terms| millis(terms.min_age)),
        terms.is_some_and(|terms: &QuorumTerms| terms.again),
    )
}

/// What many ask for, in one call.
pub(crate) fn claims(claims: &[Claim]) -> Call {
    fn each<T>(claims: &[Claim], what: impl Fn(&Claim) -> T) -> Vec<T> {
        claims.iter().map(what).collect()
    }
    call!(
        Verb::Claims,
        each(claims, |claim| encode(claim.key.as_str())),
        each(claims, |claim| claim.id.as_bytes().to_vec()),
        each(claims, |claim| number(claim.limit)),
        each(claims, |claim| number(claim.units.most())),
        each(claims, |claim| number(claim.units.least())),
        each(claims, |claim| claim.if_busy == IfBusy::Leave),
        each(claims, |claim| claim.order == Order::Barging),
        each(claims, |claim| claim.lease.map(millis)),
        each(claims, |claim| millis(claim.patience)),
        each(claims, |claim| millis(claim.lock_delay)),
        each(claims, |claim| number(claim.token_above)),
        each(claims, |claim| claim.inbox.0.cast_signed()),
        each(claims, |claim| encode(&claim.label)),
        each(claims, |claim| claim.value.to_vec()),
        each(claims, |claim| claim.count.map(number)),
        each(claims, keep),
        each(claims, |claim| claim.quorum.as_ref().map(|terms| millis(terms.min_age))),
        each(claims, |claim| claim.quorum.as_ref().is_some_and(|terms| terms.again)),
    )
}

/// Renewals of many. Without `wait`, a claim whose row another session keeps is answered as it stands; with it, the
/// statement waits for the rows so long.
pub(crate) fn renew(claims: &[Claim], wait: Option<Duration>) -> Call {
    call!(
        Verb::Renew,
        claims.iter().map(|claim| encode(claim.key.as_str())).collect::<Vec<_>>(),
        claims.iter().map(|claim| claim.id.as_bytes().to_vec()).collect::<Vec<_>>(),
        claims.iter().map(extension).collect::<Vec<_>>(),
        claims.iter().map(keep).collect::<Vec<_>>(),
        wait.map(millis),
    )
}

pub(crate) fn amend(claim: &Claim, change: &Change) -> Call {
    let (mut n, mut op, mut token, mut value, mut heir) = (None, None, None, None, None);
    let word = match change {
        Change::Units { to, op: which } => {
            (n, op) = (Some(number(*to)), Some(which.cast_signed()));
            "units"
        }
        Change::Give { n: less, op: which, token: latch } => {
            (n, op, token) = (Some(number(*less)), Some(which.cast_signed()), Some(number(*latch)));
            "give"
        }
        Change::Value { to, op: which } => {
            (value, op) = (Some(to.to_vec()), Some(which.cast_signed()));
            "value"
        }
        Change::Owner { to, refuse_for } => {
            (heir, n) = (Some(to), Some(millis(*refuse_for)));
            "owner"
        }
        Change::Tail(length) => {
            n = Some(millis(*length));
            "tail"
        }
        Change::Limit(limit) => {
            n = Some(number(*limit));
            "limit"
        }
        Change::Ask(token) => {
            n = Some(number(*token));
            "ask"
        }
    };
    call!(
        Verb::Amend,
        encode(claim.key.as_str()),
        claim.id.as_bytes().to_vec(),
        number(claim.limit),
        claim.if_busy == IfBusy::Leave,
        number(claim.token_above),
        keep(claim),
        word,
        n,
        op,
        token,
        value,
        heir.map(|heir| heir.id.as_bytes().to_vec()),
        heir.map(|heir| heir.inbox.0.cast_signed()),
        heir.map(|heir| encode(&heir.label)),
        heir.and_then(|heir| heir.lease).map(millis),
    )
}

/// Says who is next if it is of the claim's inbox; the database tells all others.
pub(crate) fn release(claim: &Claim, refuse_for: Option<Duration>) -> Call {
    call!(
        Verb::Release,
        encode(claim.key.as_str()),
        claim.id.as_bytes().to_vec(),
        refuse_for.map(millis),
        claim.inbox.0.cast_signed(),
    )
}

/// What many give back, in one call.
pub(crate) fn releases(all: &[(Claim, Option<Duration>)]) -> Call {
    call!(
        Verb::Releases,
        all.iter().map(|(claim, _)| encode(claim.key.as_str())).collect::<Vec<_>>(),
        all.iter().map(|(claim, _)| claim.id.as_bytes().to_vec()).collect::<Vec<_>>(),
        all.iter().map(|(_, refuse_for)| refuse_for.map(millis)).collect::<Vec<_>>(),
        all.iter().map(|(claim, _)| claim.inbox.0.cast_signed()).collect::<Vec<_>>(),
    )
}

pub(crate) fn evict(key: &Key, token: u64) -> Call {
    call!(Verb::Evict, encode(key.as_str()), number(token))
}

pub(crate) fn look(names: Vec<String>) -> Call {
    call!(Verb::Look, names)
}

/// The next names that start with `prefix` and come after `after`, as they are stored.
pub(crate) fn names(prefix: &str, after: &str, at_most: i64) -> Call {
    call!(Verb::Names, encode(prefix), after.to_owned(), at_most)
}

pub(crate) fn sweep(after: String, at_most: i32) -> Call {
    call!(Verb::Sweep, after, at_most)
}

/// Who holds the lock of a session that is called like this.
pub(crate) fn holders(verb: Verb, text: String) -> Call {
    call!(verb, text)
}

/// What a renewal extends the lease by; zero for nothing.
fn extension(claim: &Claim) -> Option<i64> {
    match claim.extend {
        Extend::Lease => claim.lease.map(millis),
        Extend::Nothing => Some(0),
    }
}

fn keep(claim: &Claim) -> Option<i64> {
    claim.quorum.as_ref().map(|terms| millis(terms.keep))
}

/// A count, token or limit. All that the rule makes are far below the end of the range.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Whole milliseconds, at least one for anything that is not zero.
fn millis(length: Duration) -> i64 {
    let millis = u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    millis.min(LONGEST).cast_signed()
}
