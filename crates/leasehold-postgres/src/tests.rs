//! The functions against the rule: on the golden vectors, and on random sequences of operations.

mod differential;
mod server;

use std::time::Duration;

use leasehold_core::rule::golden::{Case, Op, Promoted, Said, Seen, State, load};
use leasehold_core::{Change, Claim, Fence, Key, Units};

use self::server::{After, EPOCH, Server};
use crate::{ask, reply};

#[test]
fn the_functions_pass_every_vector() {
    let mut server = Server::start();
    let wrong: Vec<String> =
        load().iter().filter_map(|case| case.verify(&perform(&mut server, case), 0).err()).collect();
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

fn perform(server: &mut Server, case: &Case) -> Seen {
    let now = EPOCH;
    let mut fence = Fence::above(case.fence);
    for (id, until) in &case.state.refused {
        fence.refuse(id.0, now.saturating_add_signed(*until));
    }
    server.load(&case.state.book(now), &fence, case.age.map_or(0, |age| now - age));
    let (answer, after) = Asked::of(&case.op, &server.key).ask(server, now);
    Seen {
        answer,
        promoted: Some(after.promoted.iter().map(Promoted::from).collect()),
        ended: Some(after.ended.iter().map(|inbox| inbox.0).collect()),
        after: Some(State::of(&after.book, &after.fence, now)),
        fence: Some(after.fence.last()),
    }
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
            Self::Claim(claim) => ask::claim(claim),
            Self::Renew(claim) => ask::renew(std::slice::from_ref(claim), None),
            Self::Amend(claim, change) => ask::amend(claim, change),
            Self::Release(claim, refuse_for) => ask::release(claim, *refuse_for),
            Self::Evict(token) => ask::evict(&key, *token),
            Self::Inspect => ask::look(vec![key.as_str().to_owned()]),
        };
        let (rows, mut after) = server.call(&call, now);
        let said = match self {
            Self::Claim(claim) | Self::Renew(claim) | Self::Amend(claim, _) => {
                Said::answer(&reply::answer(reply::one(&rows).unwrap(), claim))
            }
            Self::Release(claim, _) => {
                let found = reply::released(reply::one(&rows).unwrap(), claim).map(|(found, next)| {
                    // Told by the answer, before all others.
                    after.promoted.splice(..0, next);
                    found
                });
                Said::released(&found)
            }
            Self::Evict(_) => Said::evicted(&reply::only(&rows)),
            Self::Inspect => {
                let book = reply::books(&rows).unwrap().pop();
                let shown = book.map(|(key, now, book)| reply::snapshot(&key, now, book));
                Said::shows(&shown.transpose().map(Option::flatten))
            }
        };
        (said, after)
    }
}
