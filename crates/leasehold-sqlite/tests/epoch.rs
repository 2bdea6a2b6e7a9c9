//! A file that was written under another clock: after a reboot, or next to a container with its own time.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Answer, Change, ErrorKind, Released, Store};
use leasehold_sqlite::{Settings, Sqlite};
use support::{Hand, Place, Wall, claim, token};

/// How far tokens may be ahead of the wall clock, in microseconds.
const BOUND: u64 = 60_000_000;
/// What a wall clock shows at the beginning, in microseconds.
const NOON: u64 = 1_800_000_000_000_000;
const HOUR: u64 = 3_600_000_000;

/// A store in the boot of this name, whose clock shows `millis`. It takes the file over with its first write.
async fn boot(place: &Place, name: &str, millis: u64) -> (Sqlite, Arc<Hand>) {
    let clock = Hand::at(millis);
    (place.store(Settings::new().clock(clock.clone()).epoch(name)).await, clock)
}

/// The same with this wall clock.
async fn boot_at(place: &Place, name: &str, wall: &Arc<Wall>) -> (Sqlite, Arc<Hand>) {
    let clock = Hand::at(1_000);
    let settings = Settings::new().clock(clock.clone()).wall_clock(wall.clone()).epoch(name);
    (place.store(settings).await, clock)
}

/// Changes the file from outside.
fn write(place: &Place, sql: &str) {
    rusqlite::Connection::open(place.path()).unwrap().execute(sql, []).unwrap();
}

/// A number in the file's own row.
fn number(place: &Place, column: &str) -> u64 {
    let sql = format!("SELECT {column} FROM leasehold WHERE key = x'' AND id = x''");
    let file = rusqlite::Connection::open(place.path()).unwrap();
    file.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

#[tokio::test]
async fn a_hold_from_before_a_reboot_ends_one_lease_later_and_not_earlier() {
    // Whether the new boot's clock is behind or ahead must not matter.
    for uptime in [1_000, 900_000_000] {
        let place = Place::new();
        let (before, clock) = boot(&place, "first", 500_000).await;
        token(before.claim(&claim("a")).await.unwrap());
        clock.pass(1_000);
        drop(before);

        let (after, clock) = boot(&place, "second", uptime).await;
        let mut next = claim("a");
        next.patience = Duration::from_secs(60);
        assert!(matches!(after.claim(&next).await.unwrap(), Answer::Waiting(_)));
        clock.pass(29_900);
        let mut eager = claim("a");
        eager.if_busy = leasehold_core::IfBusy::Leave;
        assert_eq!(after.claim(&eager).await.unwrap(), Answer::Busy);
        clock.pass(100);
        token(after.renew(&[next]).await.unwrap().remove(0));
    }
}

#[tokio::test]
async fn a_free_key_can_be_taken_at_once_after_a_reboot() {
    let place = Place::new();
    let (before, _) = boot(&place, "first", 500_000).await;
    before.claim(&claim("held")).await.unwrap();
    drop(before);
    let (after, _) = boot(&place, "second", 1_000).await;
    token(after.claim(&claim("free")).await.unwrap());
}

#[tokio::test]
async fn a_long_hold_that_was_renewed_lately_ends_one_lease_after_a_reboot() {
    let place = Place::new();
    let (before, clock) = boot(&place, "first", 500_000).await;
    let holder = claim("a");
    before.claim(&holder).await.unwrap();
    for _ in 0..400 {
        clock.pass(10_000);
        token(before.renew(std::slice::from_ref(&holder)).await.unwrap().remove(0));
    }
    drop(before);
    let (after, clock) = boot(&place, "second", 1_000).await;
    after.claim(&claim("other")).await.unwrap();
    clock.pass(29_999);
    assert!(after.inspect(&holder.key).await.unwrap().is_some());
    clock.pass(1);
    assert!(after.inspect(&holder.key).await.unwrap().is_none());
}

#[tokio::test]
async fn a_shorter_renewal_does_not_end_a_longer_lease_under_another_clock() {
    let place = Place::new();
    let (before, clock) = boot(&place, "first", 500_000).await;
    let mut holder = claim("a");
    token(before.claim(&holder).await.unwrap());
    clock.pass(1_000);
    holder.lease = Some(Duration::from_secs(5));
    // Its owner goes on to believe in what is left of the first lease, 29 s.
    token(before.renew(std::slice::from_ref(&holder)).await.unwrap().remove(0));

    let (after, clock) = boot(&place, "second", 1_000).await;
    after.claim(&claim("other")).await.unwrap();
    clock.pass(28_999);
    assert!(
        after.inspect(&holder.key).await.unwrap().is_some(),
        "ended before its owner stops believing in it"
    );
    clock.pass(1_001);
    assert!(after.inspect(&holder.key).await.unwrap().is_none());
}

#[tokio::test]
async fn what_was_over_before_a_reboot_stays_over() {
    let place = Place::new();
    let (before, clock) = boot(&place, "first", 500_000).await;
    before.claim(&claim("a")).await.unwrap();
    clock.pass(40_000);
    // Stamps the file.
    before.claim(&claim("b")).await.unwrap();
    drop(before);
    let (after, _) = boot(&place, "second", 1_000).await;
    token(after.claim(&claim("a")).await.unwrap());
}

#[tokio::test]
async fn a_tail_keeps_its_length_across_a_reboot() {
    let place = Place::new();
    let (before, _) = boot(&place, "first", 500_000).await;
    let job = claim("job");
    before.claim(&job).await.unwrap();
    before.amend(&job, &Change::Tail(Duration::from_secs(3_600))).await.unwrap();
    drop(before);
    let (after, clock) = boot(&place, "second", 1_000).await;
    after.claim(&claim("other")).await.unwrap();
    clock.pass(3_599_999);
    assert!(after.inspect(&job.key).await.unwrap().is_some());
    clock.pass(1);
    assert!(after.inspect(&job.key).await.unwrap().is_none());
}

#[tokio::test]
async fn tokens_after_a_reboot_are_above_all_that_were_reserved() {
    let (place, wall) = (Place::new(), Wall::at(NOON));
    let (before, _) = boot_at(&place, "first", &wall).await;
    let held = claim("a");
    let given = token(before.claim(&held).await.unwrap());
    before.release(&held, None).await.unwrap();
    drop(before);
    // The cut takes back everything after the last synced commit, and the clock is behind after it.
    write(&place, "UPDATE leasehold SET last = 5 WHERE key = x'' AND id = x''");
    wall.set(NOON + 1);
    let (after, _) = boot_at(&place, "second", &wall).await;
    assert!(token(after.claim(&claim("a")).await.unwrap()) > given);
}

#[tokio::test]
async fn two_clocks_at_once_are_a_conflict_that_names_the_cause() {
    let place = Place::new();
    let (host, _) = boot(&place, "host", 500_000).await;
    let holder = claim("a");
    token(host.claim(&holder).await.unwrap());
    let (container, clock) = boot(&place, "container", 100_000_000).await;
    let mut eager = claim("a");
    eager.if_busy = leasehold_core::IfBusy::Leave;
    assert_eq!(container.claim(&eager).await.unwrap(), Answer::Busy, "a live hold was buried");

    let error = host.renew(&[holder]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("time namespace"), "{error}");
    clock.pass(30_000);
    token(container.claim(&claim("a")).await.unwrap());
}

#[tokio::test]
async fn looking_from_another_clock_changes_nothing() {
    let place = Place::new();
    let (host, _) = boot(&place, "host", 500_000).await;
    let holder = claim("a");
    token(host.claim(&holder).await.unwrap());
    let visitor =
        Sqlite::open(place.path(), Settings::new().clock(Hand::at(9_000_000)).epoch("visitor")).unwrap();
    // Not opened for anybody: it only looks.
    drop(visitor.inspect(&holder.key).await);
    token(host.renew(&[holder]).await.unwrap().remove(0));
}

#[tokio::test]
async fn a_thousand_boots_leave_tokens_within_their_bound() {
    let (place, wall) = (Place::new(), Wall::at(NOON));
    let (first, _) = boot_at(&place, "first", &wall).await;
    let mut last = token(first.claim(&claim("first")).await.unwrap());
    assert_eq!(last, NOON + BOUND, "a file without a record starts at the bound");
    drop(first);
    // The clock stands still for the first half, and shows another microsecond at each boot of the second.
    for n in 0..1_000 {
        let now = NOON + u64::saturating_sub(n, 500);
        wall.set(now);
        let (store, _) = boot_at(&place, &format!("boot {n}"), &wall).await;
        // A hold from the last boot would be waited for, so each boot uses a key of its own.
        match store.claim(&claim(&format!("k{n}"))).await {
            Ok(answer) => {
                let drawn = token(answer);
                assert!(now > NOON && last < drawn && drawn <= now + BOUND, "boot {n}: {drawn} after {last}");
                last = drawn;
            }
            Err(error) => {
                assert!(now == NOON, "boot {n}: {error}");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("wait 1ms"), "{error}");
            }
        }
        drop(store);
        let reserved = number(&place, "ceiling");
        assert!(reserved <= now + BOUND, "boot {n}: reserved {} µs too far", reserved - now - BOUND);
    }
    assert_eq!(last, NOON + 499 + BOUND);
}

#[tokio::test]
async fn a_boot_after_the_clock_was_set_back_grants_nothing_until_it_has_caught_up() {
    let (place, wall) = (Place::new(), Wall::at(NOON));
    let (before, _) = boot_at(&place, "first", &wall).await;
    let given = token(before.claim(&claim("a")).await.unwrap());
    drop(before);
    wall.set(NOON - HOUR);
    let (after, _) = boot_at(&place, "second", &wall).await;
    let error = after.claim(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("wait 3600"), "{error}");
    wall.set(NOON + 1);
    assert!(token(after.claim(&claim("b")).await.unwrap()) > given);
}

#[tokio::test]
async fn without_a_number_holders_renew_and_release_and_waiters_keep_their_places() {
    let (place, wall) = (Place::new(), Wall::at(NOON));
    let (store, _) = boot_at(&place, "boot", &wall).await;
    let (holder, evicted, waiter) = (claim("a"), claim("b"), claim("a"));
    let first = token(store.claim(&holder).await.unwrap());
    wall.set(NOON + 1_000);
    let second = token(store.claim(&evicted).await.unwrap());
    assert!(matches!(store.claim(&waiter).await.unwrap(), Answer::Waiting(_)));
    // All numbers that were reserved are drawn, and the clock is set back.
    write(&place, "UPDATE leasehold SET last = ceiling WHERE key = x'' AND id = x''");
    wall.set(NOON - HOUR);

    assert_eq!(store.claim(&claim("c")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let busy = leasehold_core::Claim { if_busy: leasehold_core::IfBusy::Leave, ..claim("a") };
    assert_eq!(store.claim(&busy).await.unwrap(), Answer::Busy);
    assert_eq!(token(store.renew(std::slice::from_ref(&holder)).await.unwrap().remove(0)), first);
    assert_eq!(store.release(&holder, None).await.unwrap(), Released::Held);
    assert!(store.evict(&evicted.key, second).await.unwrap());
    assert!(matches!(store.renew(std::slice::from_ref(&waiter)).await.unwrap()[..], [Answer::Waiting(_)]));
    wall.set(NOON + 2_000);
    assert!(token(store.renew(std::slice::from_ref(&waiter)).await.unwrap().remove(0)) > second);
}

#[tokio::test]
async fn a_claim_that_asks_for_a_token_beyond_the_bound_is_refused_and_moves_nothing() {
    let (place, wall) = (Place::new(), Wall::at(NOON));
    let (store, _) = boot_at(&place, "boot", &wall).await;
    token(store.claim(&claim("a")).await.unwrap());
    wall.set(NOON + 1_000);
    let ask = |name: &str, above| leasehold_core::Claim { token_above: above, ..claim(name) };
    for above in [NOON + 1_000 + BOUND, 1 << 62, u64::MAX] {
        let error = store.claim(&ask("b", above)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("more than 60 s ahead"), "{error}");
    }
    assert!(token(store.claim(&claim("c")).await.unwrap()) <= NOON + 1_000 + BOUND);
    wall.set(NOON + 2_000);
    assert_eq!(token(store.claim(&ask("b", NOON + 1_999 + BOUND)).await.unwrap()), NOON + 2_000 + BOUND);
}

#[tokio::test]
async fn tokens_of_a_new_file_are_above_those_of_a_deleted_one() {
    let last = {
        let place = Place::new();
        let mut last = 0;
        for n in 0..3 {
            let (store, _) = boot(&place, &format!("boot {n}"), 1_000).await;
            let key = leasehold_core::Key::new(format!("k{n}")).unwrap();
            last = token(store.claim(&leasehold_core::Claim { key, ..claim("a") }).await.unwrap());
        }
        last
    };
    let place = Place::new();
    let (store, _) = boot(&place, "boot 9", 1_000).await;
    let first = token(store.claim(&claim("a")).await.unwrap());
    assert!(
        first > last,
        "a new file starts at {first}, {} s below the last token",
        (last - first) / 1_000_000
    );
}
