//! The scripts against the rule: on the golden vectors, and on random sequences of operations.

mod differential;
mod fence;
mod server;

use std::time::Duration;

use leasehold_core::rule::golden::{Case, Op, Promoted, Said, Seen, State, load};
use leasehold_core::{Change, Claim, Fence, Key, Units};

use self::server::{After, EPOCH, Server};
use crate::ask::{self, Fences};
use crate::reply;
use crate::script::Call;

#[test]
fn the_scripts_pass_every_vector() {
    passes_every_vector(&mut Server::start());
}

#[test]
fn the_short_ways_pass_every_vector_or_change_nothing() {
    let mut server = Server::start();
    server.in_company = true;
    passes_every_vector(&mut server);
}

#[test]
fn valkey_runs_the_scripts_as_redis_does() {
    let Some(mut server) = Server::valkey() else { return };
    passes_every_vector(&mut server);
    server.in_company = true;
    passes_every_vector(&mut server);
    differential::answers_like_the_rule(&mut server);
}

fn passes_every_vector(server: &mut Server) {
    let wrong: Vec<String> =
        load().iter().filter_map(|case| case.verify(&perform(server, case), 0).err()).collect();
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

fn perform(server: &mut Server, case: &Case) -> Seen {
    let now = EPOCH;
    let mut fence = Fence::above(case.fence);
    for (id, until) in &case.state.refused {
        fence.refuse(id.0, now.saturating_add_signed(*until));
    }
    server.load(&case.state.book(now), &fence, case.age.map_or(0, |age| now - age), now);
    let (answer, after) = Asked::of(&case.op, &server.key).ask(server, now);
    Seen {
        answer,
        promoted: Some(after.promoted.iter().map(Promoted::from).collect()),
        ended: Some(after.ended.iter().map(|inbox| inbox.0).collect()),
        after: Some(State::of(&after.book, &after.fence, now)),
        fence: Some(after.fence.last()),
    }
}

#[test]
fn a_lock_of_expired_waiters_only_is_soon_free_for_another_limit() {
    const WAITERS: usize = 150;
    let mut server = Server::start();
    let asked = |limit| {
        let mut claim = Claim::new(Key::new("vector").unwrap(), limit, Units::Exactly(1)).unwrap();
        (claim.lease, claim.patience) = (Some(Duration::from_secs(1)), Duration::from_secs(1));
        Asked::Claim(claim)
    };
    for _ in 0..=WAITERS {
        asked(1).ask(&mut server, EPOCH);
    }
    // Of those who are late, a few are removed with each request.
    let later = EPOCH + 2_000;
    for _ in 0..WAITERS / 64 {
        assert!(matches!(asked(7).ask(&mut server, later).0, Said::Error(kind) if kind == "conflict"));
    }
    let (said, after) = asked(7).ask(&mut server, later);
    assert!(matches!(said, Said::Granted { .. }), "{said:?}");
    assert_eq!(after.book.rows().count(), 1);
}

/// What a store can be asked about one key.
#[derive(Debug)]
enum Asked {
    Claim(Claim),
    Renew(Claim),
    Amend(Claim, Change),
    Release(Claim, Option<Duration>),
    Evict(u64),
    Inspect,
}

impl Asked {
    fn of(op: &Op, key: &Key) -> Self {
        match op {
            Op::Claim(asked) => Self::Claim(asked.claim(key)),
            Op::Renew(asked) => Self::Renew(asked.claim(key)),
            Op::Amend { claim, change } => Self::Amend(claim.claim(key), change.change(key)),
            Op::Release { id, refuse_for } => {
                let mut claim = Claim::new(key.clone(), 1, Units::Exactly(1)).unwrap();
                claim.id = id.0;
                Self::Release(claim, refuse_for.map(Duration::from_millis))
            }
            Op::Evict { token } => Self::Evict(*token),
            Op::Inspect => Self::Inspect,
        }
    }

    /// Asks the server, at this time.
    fn ask(&self, server: &mut Server, now: u64) -> (Said, After) {
        let key = server.key.clone();
        let call = match self {
            Self::Claim(claim) => Fences::One.claim(claim, 0).unwrap(),
            Self::Renew(claim) => Fences::One.renew(std::iter::once(claim)).unwrap(),
            Self::Amend(claim, change) => Fences::One.amend(claim, change, 0).unwrap(),
            Self::Release(claim, refuse_for) => Fences::One.release(claim, *refuse_for),
            Self::Evict(token) => Fences::One.evict(&key, *token),
            Self::Inspect => Fences::One.inspect(std::iter::once(&key)).unwrap(),
        };
        let (reply, after) = self.reply(server, call, now);
        let said = match self {
            Self::Claim(claim) => Said::answer(&reply::claimed(reply, claim)),
            Self::Amend(..) => Said::answer(&reply::answer(reply, &key)),
            Self::Renew(_) => Said::answer(&reply::answer(only(reply), &key)),
            Self::Release(..) => Said::released(&reply::released(reply, &key)),
            Self::Evict(_) => Said::evicted(&reply::evicted(reply, &key)),
            Self::Inspect => Said::shows(&reply::snapshot(only(reply), &key)),
        };
        (said, after)
    }

    /// Among many first, where it may be: one that must ask alone has changed nothing.
    fn reply(&self, server: &mut Server, call: Call, now: u64) -> (redis::Value, After) {
        if server.in_company && call.joins {
            let (reply, after) = server.call(&ask::many(vec![call.clone()]), now);
            let reply = only(reply);
            if reply != redis::Value::Nil {
                return (reply, after);
            }
        }
        server.call(&call, now)
    }
}

fn only(reply: redis::Value) -> redis::Value {
    reply::each(reply, 1).unwrap().remove(0)
}
