//! The checker catches what is planted, and nothing else.

use super::check::{Rules, Violation, check};
use super::{Event, Found, Step};

const KEY: &str = "k";
const MUTEX: Rules = Rules { limit: 1, ordered: true };

fn event(at: u64, worker: u64, step: Step) -> Event {
    Event { at, worker, key: KEY.to_owned(), step }
}

/// A whole life: asks, holds, releases.
fn hold(worker: u64, asked: u64, from: u64, until: u64, token: u64) -> Vec<Event> {
    vec![
        event(asked, worker, Step::Asks { units: 1 }),
        event(from, worker, Step::Acquired { token, units: 1, deadline: from + 999 }),
        event(until, worker, Step::Releases),
        event(until + 1, worker, Step::Released { found: Found::Held }),
    ]
}

fn history(parts: impl IntoIterator<Item = Vec<Event>>) -> Vec<Event> {
    parts.into_iter().flatten().collect()
}

#[test]
fn a_clean_history_passes() {
    let mut events = history([hold(1, 0, 1, 10, 1), hold(2, 5, 11, 20, 2), hold(3, 6, 21, 30, 3)]);
    events.push(event(7, 2, Step::Queued));
    events.push(event(8, 3, Step::Queued));
    assert_eq!(check(&events, MUTEX), []);
}

#[test]
fn two_holders_at_once_are_an_overlap() {
    let events = history([hold(1, 0, 1, 10, 1), hold(2, 5, 9, 20, 2)]);
    let overlap = Violation::Overlap { key: KEY.to_owned(), at: 9, units: 2, workers: vec![1, 2] };
    assert_eq!(check(&events, MUTEX), [overlap]);
}

#[test]
fn as_many_as_the_limit_are_no_overlap_and_one_more_is() {
    let rules = Rules { limit: 2, ordered: false };
    let two = history([hold(1, 0, 1, 10, 1), hold(2, 0, 2, 10, 2)]);
    assert_eq!(check(&two, rules), []);
    let three = history([two, hold(3, 0, 3, 10, 3)]);
    assert!(matches!(check(&three, rules)[..], [Violation::Overlap { units: 3, .. }]));
}

#[test]
fn belief_ends_at_the_deadline() {
    // It never released, and its deadline is 1,000.
    let mut events = hold(1, 0, 1, 10, 1);
    events.truncate(2);
    let late = history([events.clone(), hold(2, 5, 1_000, 1_001, 2)]);
    assert_eq!(check(&late, MUTEX), []);
    let early = history([events, hold(2, 5, 999, 1_001, 2)]);
    assert!(matches!(check(&early, MUTEX)[..], [Violation::Overlap { at: 999, .. }]));
}

#[test]
fn belief_goes_on_after_a_renewal() {
    let mut events = hold(1, 0, 1, 10, 1);
    events.truncate(2);
    events.push(event(900, 1, Step::Renewed { deadline: 2_000 }));
    events.extend(hold(2, 5, 1_500, 1_501, 2));
    assert!(matches!(check(&events, MUTEX)[..], [Violation::Overlap { at: 1_500, .. }]));
}

#[test]
fn belief_ends_with_a_loss() {
    let mut events = hold(1, 0, 1, 10, 1);
    events.truncate(2);
    events.push(event(50, 1, Step::Lost));
    events.extend(hold(2, 5, 50, 60, 2));
    assert_eq!(check(&events, MUTEX), []);
}

#[test]
fn who_queued_before_another_asked_must_not_be_overtaken() {
    let mut events = history([hold(1, 0, 1, 10, 1), hold(2, 2, 30, 40, 3), hold(3, 6, 11, 20, 2)]);
    events.push(event(5, 2, Step::Queued));
    let overtaken = Violation::Overtaken { key: KEY.to_owned(), worker: 2, by: 3 };
    assert_eq!(check(&events, MUTEX), [overtaken]);
    assert_eq!(check(&events, Rules { ordered: false, ..MUTEX }), []);
}

#[test]
fn concurrent_arrivals_may_come_in_any_order() {
    let mut events = history([hold(1, 0, 1, 10, 1), hold(2, 2, 30, 40, 3), hold(3, 4, 11, 20, 2)]);
    events.push(event(5, 2, Step::Queued));
    assert_eq!(check(&events, MUTEX), []);
}

#[test]
fn who_gave_up_was_not_overtaken() {
    let mut events = history([hold(1, 0, 1, 10, 1), hold(3, 6, 11, 20, 2)]);
    events.extend([
        event(2, 2, Step::Asks { units: 1 }),
        event(5, 2, Step::Queued),
        event(9, 2, Step::Failed),
    ]);
    assert_eq!(check(&events, MUTEX), []);
}

#[test]
fn a_token_seen_twice_is_caught() {
    let events = history([hold(1, 0, 1, 10, 7), hold(2, 5, 11, 20, 7)]);
    assert_eq!(check(&events, MUTEX), [Violation::TokenRepeated { key: KEY.to_owned(), token: 7 }]);
}

#[test]
fn a_smaller_token_later_is_caught() {
    let events = history([hold(1, 0, 1, 10, 7), hold(2, 12, 13, 20, 6)]);
    assert_eq!(check(&events, MUTEX), [Violation::TokenRegressed { key: KEY.to_owned(), from: 7, to: 6 }]);
}

#[test]
fn a_smaller_token_is_caught_between_exclusive_holds_that_were_asked_for_together() {
    let events = history([hold(1, 0, 1, 10, 7), hold(2, 0, 11, 20, 6)]);
    assert_eq!(check(&events, MUTEX), [Violation::TokenRegressed { key: KEY.to_owned(), from: 7, to: 6 }]);
}

#[test]
fn tokens_of_grants_that_were_asked_for_together_may_be_seen_in_any_order() {
    let rules = Rules { limit: 4, ordered: false };
    let events = history([hold(1, 0, 3, 10, 7), hold(2, 0, 4, 20, 6)]);
    assert_eq!(check(&events, rules), []);
}

#[test]
fn a_hold_that_is_gone_without_a_word_is_a_silent_loss() {
    let mut events = hold(1, 0, 1, 10, 1);
    events[3].step = Step::Released { found: Found::Gone };
    assert_eq!(check(&events, MUTEX), [Violation::SilentLoss { key: KEY.to_owned(), worker: 1 }]);
}

#[test]
fn a_loss_that_was_told_or_was_due_is_not_silent() {
    let mut told = hold(1, 0, 1, 10, 1);
    told[3].step = Step::Released { found: Found::Gone };
    told.push(event(9, 1, Step::Lost));
    assert_eq!(check(&told, MUTEX), []);
    let mut due = hold(1, 0, 1, 1_000, 1);
    due[3].step = Step::Released { found: Found::Gone };
    assert_eq!(check(&due, MUTEX), []);
}

#[test]
fn keys_are_checked_apart() {
    let mut other = hold(2, 0, 1, 10, 1);
    for event in &mut other {
        event.key = "other".to_owned();
    }
    assert_eq!(check(&history([hold(1, 0, 1, 10, 1), other]), MUTEX), []);
}

#[test]
fn a_history_survives_being_written_down() {
    let events = hold(1, 0, 1, 10, 1);
    let text = serde_json::to_string(&events).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Event>>(&text).unwrap(), events);
}

/// A semaphore of two that an operator resizes to six, during `up`, and back, during `down`.
fn resized(up: (u64, u64), down: (u64, u64)) -> Vec<Event> {
    let call = |(from, to), limit| [event(from, 9, Step::Resizes { limit }), event(to, 9, Step::Resized)];
    call(up, 6).into_iter().chain(call(down, 2)).collect()
}

const TWO: Rules = Rules { limit: 2, ordered: false };

/// Two that hold from before the resizes to long after them.
fn two_that_hold() -> Vec<Event> {
    history([hold(1, 0, 1, 900, 1), hold(2, 0, 2, 900, 2)])
}

#[test]
fn a_grant_within_a_limit_that_may_be_in_force_is_right() {
    for (asked, granted) in [(20, 30), (5, 12), (45, 70)] {
        let events = history([two_that_hold(), resized((10, 15), (50, 60)), hold(3, asked, granted, 900, 3)]);
        assert_eq!(check(&events, TWO), [], "asked at {asked}, granted at {granted}");
    }
}

#[test]
fn a_grant_beyond_every_limit_that_may_be_in_force_is_caught() {
    for (asked, granted) in [(3, 9), (61, 70)] {
        let events = history([two_that_hold(), resized((10, 15), (50, 60)), hold(3, asked, granted, 900, 3)]);
        let exceeded = Violation::Exceeded { key: KEY.to_owned(), token: 3, units: 3, limit: 2 };
        assert_eq!(check(&events, TWO), [exceeded], "asked at {asked}, granted at {granted}");
    }
}

#[test]
fn a_resize_without_an_answer_may_take_effect_later() {
    let mut events = history([two_that_hold(), resized((10, 15), (50, 60)), hold(3, 61, 70, 900, 3)]);
    events.retain(|event| event.at != 15);
    assert_eq!(check(&events, TWO), []);
}

#[test]
fn a_grant_between_two_snapshots_counts_who_is_in_both() {
    // The grant was asked for before the limit fell, but the store did not have it afterwards.
    let asked_early = history([two_that_hold(), resized((10, 15), (50, 60)), hold(3, 20, 80, 900, 3)]);
    assert_eq!(check(&asked_early, TWO), []);
    let saw = |at, tokens: &[u64]| {
        let holders = tokens.iter().map(|token| (*token, 1)).collect();
        event(at, 10, Step::Saw { asked: at - 1, holders })
    };
    let events = history([asked_early, vec![saw(62, &[1, 2]), saw(75, &[1, 2, 3])]]);
    let exceeded = Violation::Exceeded { key: KEY.to_owned(), token: 3, units: 3, limit: 2 };
    assert_eq!(check(&events, TWO), [exceeded]);
}

#[test]
fn the_store_can_accuse_itself() {
    let account = |units| event(90, 10, Step::Account { token: 1, units, limit: 2 });
    assert_eq!(check(&history([two_that_hold(), vec![account(2)]]), TWO), []);
    let exceeded = Violation::Exceeded { key: KEY.to_owned(), token: 1, units: 3, limit: 2 };
    assert_eq!(check(&history([two_that_hold(), vec![account(3)]]), TWO), [exceeded]);
}

#[test]
fn belief_counts_for_nothing_after_an_eviction() {
    let mut events = history([hold(1, 0, 1, 50, 1), hold(2, 5, 20, 60, 2)]);
    events.push(event(10, 9, Step::Evicts { token: 1 }));
    events[3].step = Step::Released { found: Found::Gone };
    assert_eq!(check(&events, MUTEX), []);
    events.retain(|event| !matches!(event.step, Step::Evicts { .. }));
    assert!(check(&events, MUTEX).len() > 1);
}
