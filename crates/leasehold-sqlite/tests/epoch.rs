//! A file that was written under another clock: after a reboot, or next to a container with its own time.

mod support;

use std::time::Duration;

use leasehold_core::{Answer, Change, ErrorKind, Store};
use leasehold_sqlite::{Settings, Sqlite};
use support::{Hand, Place, claim, token};

/// A store in the boot of this name, whose clock shows `millis`. It takes the file over with its first write.
async fn boot(place: &Place, name: &str, millis: u64) -> (Sqlite, std::sync::Arc<Hand>) {
    let clock = Hand::at(millis);
    (place.store(Settings::new().clock(clock.clone()).epoch(name)).await, clock)
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
    let place = Place::new();
    let (before, _) = boot(&place, "first", 500_000).await;
    let mut ahead = claim("a");
    // As if the wall clock had been far ahead before the power cut.
    ahead.token_above = 1 << 55;
    let given = token(before.claim(&ahead).await.unwrap());
    before.release(&ahead, None).await.unwrap();
    drop(before);
    // The cut takes back everything after the last synced commit.
    let file = rusqlite::Connection::open(place.path()).unwrap();
    file.execute("UPDATE leasehold SET last = 5 WHERE key = x'' AND id = x''", []).unwrap();
    drop(file);
    let (after, _) = boot(&place, "second", 1_000).await;
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
