//! The fence: numbers rise, whatever a server forgets.

use std::time::Duration;

use leasehold_core::rule::golden::Said;
use leasehold_core::{Book, Claim, Fence, QuorumTerms, Units};

use super::Asked;
use super::server::{EPOCH, Server};
use crate::ask::Fences;
use crate::reply;

/// How far numbers leap, in milliseconds of the clock.
const LEAP: u64 = 60_000;

/// The fence of another server, that was just looked at and is so old.
fn record(last: u64, born: u64) -> String {
    format!("{last:016} {born} {} {}", EPOCH / 1000, "0".repeat(16))
}

fn claim(server: &Server) -> Claim {
    Claim::new(server.key.clone(), 1, Units::Exactly(1)).unwrap()
}

/// The token of a claim that holds at this time, and is given back.
fn token(server: &mut Server, now: u64, seen: u64) -> u64 {
    let claim = claim(server);
    let (reply, _) = server.call(&Fences::One.claim(&claim, seen).unwrap(), now);
    let answer = reply::claimed(reply, &claim).unwrap();
    server.call(&Fences::One.release(&claim, None), now);
    match answer {
        leasehold_core::Answer::Granted(grant) => grant.token,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn numbers_follow_the_clock_and_never_go_back_with_it() {
    let mut server = Server::start();
    server.load(&Book::default(), &Fence::above(7), 0, EPOCH);
    assert_eq!(token(&mut server, EPOCH, 0), EPOCH * 1000);
    assert_eq!(token(&mut server, EPOCH + 5, 0), (EPOCH + 5) * 1000);
    assert_eq!(token(&mut server, EPOCH - 5_000, 0), (EPOCH + 5) * 1000 + 1);
}

#[test]
fn numbers_are_above_what_the_client_has_seen() {
    let mut server = Server::start();
    server.load(&Book::default(), &Fence::above(7), 0, EPOCH);
    let seen = (EPOCH + LEAP) * 1000;
    assert_eq!(token(&mut server, EPOCH, seen), seen + 1);
}

#[test]
fn an_emptied_server_whose_clock_is_behind_leaps_above_its_last_number() {
    let mut server = Server::start();
    // Its record is older than the leap with which it began.
    server.load(&Book::default(), &Fence::above(7), 0, EPOCH);
    let before = token(&mut server, EPOCH, 0);
    server.flush();
    let after = token(&mut server, EPOCH - 5_000, 0);
    assert!(after > before, "{after} after {before}");
}

#[test]
fn a_promoted_replica_whose_clock_is_behind_leaps_above_what_it_never_heard_of() {
    let mut server = Server::start();
    // The record of the old primary, whose clock was five seconds ahead, as far as it was replicated.
    let heard = (EPOCH + 5_000) * 1000;
    server.set_fence(&record(heard, EPOCH - 1));
    let unheard = heard + 100_000;
    let after = token(&mut server, EPOCH + 300, 0);
    assert!(after > unheard, "{after} after {unheard}");
    assert!(after > heard + LEAP * 1000);
    // Once: the next one follows.
    assert_eq!(token(&mut server, EPOCH + 300, 0), after + 1);
}

#[test]
fn who_connected_before_two_failovers_does_not_draw_below_what_was_lost_between_them() {
    let mut server = Server::start();
    // It was a primary of this name when the caller connected, then a replica, now a primary again: of the numbers that
    // were given out meanwhile it never heard.
    server.set_fence(&record(EPOCH * 1000, EPOCH - 3_600_000));
    server.here = "0".repeat(16);
    let later = EPOCH + 1_000;
    assert!(token(&mut server, later, 0) > (later + LEAP) * 1000);
}

#[test]
fn a_server_that_nobody_knows_is_asked_for_its_name() {
    let mut server = Server::start();
    server.load(&Book::default(), &Fence::above(7), 0, EPOCH);
    server.here.clear();
    assert_eq!(token(&mut server, EPOCH, 0), EPOCH * 1000);
    assert_eq!(token(&mut server, EPOCH + 5, 0), (EPOCH + 5) * 1000);
}

#[test]
fn a_server_that_forgot_something_is_too_young_for_a_quorum() {
    let mut server = Server::start();
    server.set_fence(&record(EPOCH * 1000, EPOCH - 3_600_000));
    let mut claim = claim(&server);
    let (keep, min_age) = (Duration::from_secs(60), Duration::from_secs(60));
    claim.quorum = Some(QuorumTerms { keep, min_age, again: false });
    let asked = Asked::Claim(claim);
    let at = |server: &mut Server, now| asked.ask(server, now).0;
    assert!(matches!(at(&mut server, EPOCH), Said::Error(kind) if kind == "unavailable"));
    assert!(matches!(at(&mut server, EPOCH + 59_999), Said::Error(_)));
    assert!(matches!(at(&mut server, EPOCH + 60_000), Said::Granted { .. }));
}

#[test]
fn a_renewal_among_many_names_its_own_lock() {
    let mut server = Server::start();
    let claims = [claim(&server), claim(&server)];
    server.call(&Fences::One.claim(&claims[1], 0).unwrap(), EPOCH);
    let (reply, _) = server.call(&Fences::One.renew(claims.iter()).unwrap(), EPOCH);
    let replies = reply::each(reply, 2).unwrap();
    let answers: Vec<_> =
        replies.into_iter().map(|reply| reply::answer(reply, &server.key).unwrap()).collect();
    assert!(matches!(answers[..], [leasehold_core::Answer::Gone, leasehold_core::Answer::Granted(_)]));
}
