//! The fence: numbers rise, whatever a server forgets.

use std::time::Duration;

use leasehold_core::rule::golden::Said;
use leasehold_core::{Answer, Book, Claim, ErrorKind, Fence, QuorumTerms, Result, Units};

use super::Asked;
use super::server::{EPOCH, Server};
use crate::ask::Fences;
use crate::reply;

/// How far a fence may be ahead of its clock, in milliseconds: `BOUND` of fence.lua.
const BOUND: u64 = 60_000;

/// The fence of another server, that was just looked at and is so old.
fn record(last: u64, born: u64) -> String {
    format!("{last:016} {born} {} {}", EPOCH / 1000, "0".repeat(16))
}

fn claim(server: &Server) -> Claim {
    Claim::new(server.key.clone(), 1, Units::Exactly(1)).unwrap()
}

/// The token of a claim that holds at this time, and is given back.
fn token(server: &mut Server, now: u64, seen: u64) -> u64 {
    try_token(server, now, seen).unwrap()
}

/// The same, or why the server grants nothing now.
fn try_token(server: &mut Server, now: u64, seen: u64) -> Result<u64> {
    let claim = claim(server);
    let (reply, _) = server.call(&Fences::One.claim(&claim, seen).unwrap(), now);
    let answer = reply::claimed(reply, &claim)?;
    server.call(&Fences::One.release(&claim, None), now);
    match answer {
        Answer::Granted(grant) => Ok(grant.token),
        other => panic!("not granted: {other:?}"),
    }
}

/// The fence as if another server had written it: this server then finds that its replication id has changed.
fn change_replication_id(server: &mut Server) {
    let text = server.fence();
    server.set_fence(&format!("{}{}", &text[..text.len() - 16], "0".repeat(16)));
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
    let seen = (EPOCH + BOUND) * 1000 - 1;
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

/// docs/safety.md admits this, and the two that follow.
#[test]
fn tokens_fall_when_the_record_is_lost_and_the_clock_is_further_behind_than_the_bound() {
    let mut server = Server::start();
    server.load(&Book::default(), &Fence::above(7), 0, EPOCH);
    let before = token(&mut server, EPOCH, 0);
    server.flush();
    let after = token(&mut server, EPOCH - BOUND - 1, 0);
    assert!(after < before, "{after} after {before}: the safety page is too strict");
}

#[test]
fn tokens_fall_when_the_record_is_lost_again_within_the_bound_and_the_clock_is_behind() {
    let mut server = Server::start();
    let before = token(&mut server, EPOCH, 0);
    server.flush();
    let after = token(&mut server, EPOCH - 1, 0);
    assert!(after < before, "{after} after {before}: the safety page is too strict");
}

#[test]
fn tokens_fall_when_a_primary_returns_within_the_second_of_its_last_look() {
    let mut server = Server::start();
    server.set_fence(&record(EPOCH * 1000, EPOCH - 3_600_000));
    server.here = "0".repeat(16);
    // Another server was the primary in between, and this one never heard of its numbers.
    let unheard = (EPOCH + 400) * 1000;
    let after = token(&mut server, EPOCH + 300, 0);
    assert!(after < unheard, "{after} after {unheard}: the safety page is too strict");
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
    assert_eq!(after, (EPOCH + 300 + BOUND) * 1000 + 1);
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
    assert!(token(&mut server, later, 0) > (later + BOUND) * 1000);
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
    assert!(matches!(answers[..], [Answer::Gone, Answer::Granted(_)]));
}

#[test]
fn a_thousand_restarts_leave_the_fence_within_its_bound_of_the_clock() {
    let mut server = Server::start();
    let (mut largest, mut now, mut refused) = (0, EPOCH, 0);
    for restart in 0..1_000 {
        change_replication_id_of_any(&mut server);
        now += 20;
        match try_token(&mut server, now, 0) {
            Ok(token) => {
                assert!(token > largest, "restart {restart}: {token} after {largest}");
                let ahead = token - now * 1000;
                assert!(ahead <= BOUND * 1000 + 1_000, "restart {restart}: {} s ahead", ahead / 1_000_000);
                largest = token;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("clock"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 900, "{refused} of a thousand restarts within 20 s were refused");
    // The record is lost, and nobody remembers the largest token.
    server.flush();
    let after = token(&mut server, now, 0);
    assert!(
        after > largest,
        "{after} after {largest}: tokens fell by {} s",
        (largest.saturating_sub(after)) / 1_000_000
    );
}

/// The first restart finds no record.
fn change_replication_id_of_any(server: &mut Server) {
    if !server.fence().is_empty() {
        change_replication_id(server);
    }
}

#[test]
fn a_leap_that_would_pass_the_bound_waits_for_the_clock() {
    let mut server = Server::start();
    let first = token(&mut server, EPOCH, 0);
    assert_eq!(first, (EPOCH + BOUND) * 1000 + 1);
    change_replication_id(&mut server);
    let error = try_token(&mut server, EPOCH + 500, 0).unwrap_err();
    assert!(error.to_string().contains("501 ms"), "{error}");
    let second = token(&mut server, EPOCH + 1_001, 0);
    assert_eq!(second, (EPOCH + 1_001 + BOUND) * 1000 + 1);
}

#[test]
fn a_client_that_has_seen_more_than_the_bound_allows_waits_for_the_clock() {
    let mut server = Server::start();
    server.load(&Book::default(), &Fence::above(7), 0, EPOCH);
    let seen = (EPOCH + BOUND + 2_000) * 1000;
    let error = try_token(&mut server, EPOCH, seen).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // Nobody else is held up by it.
    assert_eq!(token(&mut server, EPOCH, 0), EPOCH * 1000);
    assert_eq!(token(&mut server, EPOCH + 2_001, seen), seen + 1);
}

#[test]
fn a_release_while_the_fence_waits_gives_back_and_promotes_when_the_clock_has_caught_up() {
    let mut server = Server::start();
    token(&mut server, EPOCH, 0);
    let (holder, waiter) = (claim(&server), claim(&server));
    for claim in [&holder, &waiter] {
        server.call(&Fences::One.claim(claim, 0).unwrap(), EPOCH);
    }
    change_replication_id(&mut server);
    let (reply, after) = server.call(&Fences::One.release(&holder, None), EPOCH + 10);
    assert_eq!(reply::released(reply, &server.key).unwrap(), leasehold_core::Released::Held);
    assert!(after.promoted.is_empty(), "promoted with a number that may have been given out before");
    let ask = |server: &mut Server, now| {
        let (reply, _) = server.call(&Fences::One.renew(std::iter::once(&waiter)).unwrap(), now);
        reply::answer(reply::each(reply, 1).unwrap().remove(0), &server.key).unwrap()
    };
    match ask(&mut server, EPOCH + 10) {
        Answer::Waiting(place) => assert_eq!(place.look_in, Duration::from_millis(991)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(ask(&mut server, EPOCH + 1_010), Answer::Granted(_)));
}
