//! The scripts against the rule: on the golden vectors, and on random sequences of operations.

mod server;

use leasehold_core::Fence;
use leasehold_core::rule::golden::{Case, Op, Said, Seen, State, load};

use self::server::{EPOCH, Server, renewed, shown};
use crate::ask::Fences;
use crate::reply;

#[test]
fn the_scripts_pass_every_vector() {
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
    server.load(&case.state.book(now), &fence, case.age.map_or(0, |age| now - age), now);
    let answer = operate(server, &case.op, now);
    let (promoted, ended) = shown(&server.heard());
    let (book, fence) = server.look(now);
    let after = Some(State::of(&book, &fence, now));
    Seen { answer, promoted: Some(promoted), ended: Some(ended), after, fence: Some(fence.last()) }
}

fn operate(server: &mut Server, op: &Op, now: u64) -> Said {
    let key = server.key.clone();
    match op {
        Op::Claim(asked) => {
            let call = Fences::One.claim(&asked.claim(&key), 0);
            Said::answer(&call.and_then(|call| reply::answer(server.call(&call, now), &key)))
        }
        Op::Renew(asked) => Said::answer(&renewed(server, &asked.claim(&key), now)),
        Op::Amend { claim, change } => {
            let call = Fences::One.amend(&claim.claim(&key), &change.change(&key), 0);
            Said::answer(&call.and_then(|call| reply::answer(server.call(&call, now), &key)))
        }
        Op::Release { id, refuse_for } => {
            let mut claim =
                leasehold_core::Claim::new(key.clone(), 1, leasehold_core::Units::Exactly(1)).unwrap();
            claim.id = id.0;
            let refuse_for = refuse_for.map(std::time::Duration::from_millis);
            let call = Fences::One.release(&claim, refuse_for);
            Said::released(&reply::released(server.call(&call, now), &key))
        }
        Op::Evict { token } => {
            let call = Fences::One.evict(&key, *token);
            Said::evicted(&reply::evicted(server.call(&call, now), &key))
        }
        Op::Inspect => {
            let call = Fences::One.inspect(&key);
            Said::shows(&reply::snapshot(server.call(&call, now), &key))
        }
    }
}
