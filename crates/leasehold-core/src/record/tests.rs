//! The adaptor on the test store.

mod sessions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use super::testing::{MapRecords, Trouble};
use super::{Keep, RecordStore, Records, Swap, Swapped, Version};
use crate::book::{Book, Fence, OpenBook};
use crate::claim::{Answer, Change, Claim, ClaimId, IfBusy, Order, Released, Units};
use crate::clock::{BootClock, Clock, TestClock};
use crate::error::{ErrorKind, Result};
use crate::key::Key;
use crate::rule;
use crate::store::Store;

fn key() -> Key {
    Key::new("orders/42").unwrap()
}

fn claim(id: u8) -> Claim {
    let mut claim = Claim::new(key(), 1, Units::Exactly(1)).unwrap();
    claim.id = ClaimId::from_bytes([id; 16]);
    claim
}

fn store_with(trouble: Trouble) -> (RecordStore<MapRecords>, Arc<TestClock>) {
    let clock = Arc::new(TestClock::new());
    (RecordStore::new(MapRecords::with(clock.clone(), trouble)), clock)
}

/// One random operation, made on the store and on the rule itself.
#[derive(Debug)]
enum Step {
    Claim(Claim),
    Renew(Claim),
    Amend(Claim, Change),
    Release(Claim, Option<Duration>),
    Evict(u64),
}

impl Step {
    fn random(random: &mut fastrand::Rng, last: u64) -> Self {
        let mut claim = claim(random.u8(1..6));
        (claim.limit, claim.units) = (4, Units::Exactly(random.u64(1..=4)));
        if random.bool() {
            claim.units = Units::UpTo(claim.units.most());
        }
        claim.if_busy = if random.u8(0..4) == 0 { IfBusy::Leave } else { IfBusy::Queue };
        claim.order = if random.u8(0..4) == 0 { Order::Barging } else { Order::Fair };
        claim.label = "höst:1".into();
        claim.value = Arc::from([0xff, random.u8(..)]);
        match random.u8(0..8) {
            0..3 => Self::Claim(claim),
            3 => Self::Renew(claim),
            4 => {
                let (to, op) = (random.u64(1..=4), random.u64(0..6));
                let change = if random.bool() { Change::Units { to, op } } else { Change::Limit(to + 2) };
                Self::Amend(claim, change)
            }
            5 | 6 => Self::Release(claim, random.bool().then_some(Duration::from_secs(2))),
            _ => Self::Evict(last),
        }
    }

    async fn on_store(&self, store: &impl Store) -> String {
        match self {
            Self::Claim(claim) => said(store.claim(claim).await),
            Self::Renew(claim) => said(store.renew(std::slice::from_ref(claim)).await.map(|a| a[0].clone())),
            Self::Amend(claim, change) => said(store.amend(claim, change).await),
            Self::Release(claim, refuse_for) => said(store.release(claim, *refuse_for).await),
            Self::Evict(token) => said(store.evict(&key(), *token).await),
        }
    }

    fn on_rule(&self, book: &mut OpenBook<'_>, now: u64) -> String {
        match self {
            Self::Claim(claim) => said(rule::claim(book, claim, now).map(|o| o.answer)),
            Self::Renew(claim) => said(rule::renew(book, claim, now).map(|o| o.answer)),
            Self::Amend(claim, change) => said(rule::amend(book, claim, change, now).map(|o| o.answer)),
            Self::Release(claim, refuse_for) => {
                said(rule::release(book, &claim.id, *refuse_for, now).map(|o| o.answer))
            }
            Self::Evict(token) => said(rule::evict(book, *token, now).map(|o| o.answer)),
        }
    }
}

fn said<T: std::fmt::Debug>(result: Result<T>) -> String {
    format!("{:?}", result.map_err(|error| error.kind()))
}

#[tokio::test(start_paused = true)]
async fn the_adaptor_answers_like_the_rule_whatever_is_stale() {
    for seed in 0..60 {
        let (store, clock) = store_with(Trouble { seed, stale: 300, guess: 600, ..Trouble::default() });
        let (mut book, mut fence) = (Book::default(), Fence::default());
        let mut random = fastrand::Rng::with_seed(seed);
        for step in 0..60 {
            let operation = Step::random(&mut random, fence.last());
            let from_store = operation.on_store(&store).await;
            // After the call: its retries may have waited.
            let now = clock.now();
            fence.prune(now.as_millis());
            let key = key();
            let mut open = OpenBook::new(&key, &mut book, &mut fence, now.as_micros());
            let from_rule = operation.on_rule(&mut open, now.as_millis());
            assert_eq!(from_store, from_rule, "seed {seed}, step {step}: {operation:?}");
            tokio::time::advance(Duration::from_millis(random.u64(0..4000))).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_two_tasks_hold_at_once_whatever_gets_lost() {
    let trouble =
        Trouble { seed: 7, stale: 100, request_lost: 100, reply_lost: 100, unavailable: 100, guess: 500 };
    let (store, _) = store_with(trouble);
    let counter = Arc::new(AtomicU64::new(0));
    let one = |_| {
        let (store, counter) = (store.clone(), counter.clone());
        tokio::spawn(async move {
            for _ in 0..25 {
                let claim = Claim::new(key(), 1, Units::Exactly(1)).unwrap();
                // Asked again with the same id until it is known to hold.
                while !matches!(store.claim(&claim).await, Ok(Answer::Granted(_))) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let seen = counter.load(Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                counter.store(seen + 1, Ordering::SeqCst);
                while store.release(&claim, None).await.is_err() {}
            }
        })
    };
    for task in (0..8).map(one).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 200);
    assert_eq!(store.records().residue(), 0, "{:?}", store.records().raw(&key()));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_indeterminate_and_the_same_id_finds_the_grant() {
    let (store, clock) = store_with(Trouble { reply_lost: 1000, ..Trouble::default() });
    assert_eq!(store.claim(&claim(1)).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    let calm = RecordStore::new(MapRecords::with(clock, Trouble::default()));
    calm.records().overwrite(&key(), &store.records().raw(&key()).unwrap());
    assert!(matches!(calm.claim(&claim(1)).await.unwrap(), Answer::Granted(_)));
    assert!(matches!(calm.claim(&claim(2)).await.unwrap(), Answer::Waiting(_)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_polls_any_more_holds_up_nobody() {
    let (store, _) = store_with(Trouble::default());
    let first = claim(1);
    let mut forgotten = store.claim(&first);
    std::future::poll_fn(|cx| {
        assert!(forgotten.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    let next = tokio::time::timeout(Duration::from_secs(1), store.claim(&claim(2))).await;
    assert!(matches!(next.expect("it has its turn"), Ok(Answer::Waiting(_))));
    assert!(matches!(forgotten.await, Ok(Answer::Granted(_))));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_always_too_late_gives_up_without_a_trace() {
    let (store, _) = store_with(Trouble { stale: 1000, ..Trouble::default() });
    assert_eq!(store.claim(&claim(1)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.records().raw(&key()), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_ours_is_a_conflict_and_stays_as_it_is() {
    let (store, _) = store_with(Trouble::default());
    let other_format = r#"{"leasehold":2,"key":"orders/42"}"#;
    let other_key = r#"{"leasehold":1,"key":"orders/43","last":1}"#;
    for text in ["hello", "{}", other_format, other_key, r#"{"leasehold":1,"key":7}"#] {
        store.records().overwrite(&key(), text);
        assert_eq!(store.claim(&claim(1)).await.unwrap_err().kind(), ErrorKind::Conflict, "{text}");
        assert_eq!(store.records().raw(&key()).as_deref(), Some(text));
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_record_was_overwritten_is_gone_and_the_others_are_renewed() {
    let (store, _) = store_with(Trouble::default());
    let mut other = claim(2);
    other.key = Key::new("orders/43").unwrap();
    store.claim(&claim(1)).await.unwrap();
    store.claim(&other).await.unwrap();
    store.records().overwrite(&key(), "hello");
    let answers = store.renew(&[claim(1), other]).await.unwrap();
    assert!(matches!(answers[..], [Answer::Gone, Answer::Granted(_)]), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_record_refuses_newcomers_and_lets_its_holder_leave() {
    let (store, _) = store_with(Trouble::default());
    let store = RecordStore::with_max_bytes(store.records().clone(), 600);
    store.claim(&claim(1)).await.unwrap();
    let mut refused = None;
    for id in 2..20 {
        refused = refused.or(store.claim(&claim(id)).await.err());
    }
    let refused = refused.expect("twenty claims do not fit in 600 bytes");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(store.release(&claim(1), None).await.unwrap(), Released::Held);
}

#[tokio::test(start_paused = true)]
async fn who_saw_the_key_free_long_ago_cannot_write_over_what_happened_since() {
    let (store, _) = store_with(Trouble::default());
    let stalled = store.records().load(&key()).await.unwrap();
    assert_eq!(stalled.version, Version::ABSENT);
    store.claim(&claim(1)).await.unwrap();
    store.release(&claim(1), None).await.unwrap();
    let late = Swap {
        key: &key(),
        seen: stalled.version,
        seen_at: BootClock.now(),
        born: stalled.born,
        next: b"late",
        keep: Keep::Forever,
        on: None,
        sole: None,
        news: &[],
        settled: &[],
        last: 0,
        lasting: false,
    };
    assert_eq!(store.records().swap(&late).await.unwrap(), Swapped::Stale);
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_over_a_record_that_was_forgotten() {
    let (store, _) = store_with(Trouble::default());
    let token = async |id| match store.claim(&claim(id)).await.unwrap() {
        Answer::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    };
    let first = token(1).await;
    store.release(&claim(1), None).await.unwrap();
    assert_eq!(store.records().residue(), 0);
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(store.records().raw(&key()), None, "a spent record is dropped in the end");
    assert!(token(2).await > first);
}

#[tokio::test(start_paused = true)]
async fn a_read_writes_nothing() {
    let (store, _) = store_with(Trouble::default());
    store.claim(&claim(1)).await.unwrap();
    let before = store.records().load(&key()).await.unwrap().version;
    store.inspect(&key()).await.unwrap().unwrap();
    let mut busy = claim(2);
    busy.if_busy = IfBusy::Leave;
    assert_eq!(store.claim(&busy).await.unwrap(), Answer::Busy);
    assert_eq!(store.release(&claim(3), None).await.unwrap(), Released::Gone);
    assert_eq!(store.records().load(&key()).await.unwrap().version, before);
}

#[tokio::test(start_paused = true)]
async fn list_shows_every_lock_once_and_skips_what_is_not_ours() {
    let (store, _) = store_with(Trouble::default());
    for i in 0..250 {
        let mut claim = Claim::new(Key::new(format!("a/{i}")).unwrap(), 1, Units::Exactly(1)).unwrap();
        claim.label = "x".into();
        store.claim(&claim).await.unwrap();
    }
    store.records().overwrite(&Key::new("a/foreign").unwrap(), "hello");
    store.claim(&claim(1)).await.unwrap();
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list("a/", cursor.as_deref()).await.unwrap();
        seen.extend(page.resources.into_iter().map(|shown| shown.key));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let all = seen.len();
    seen.dedup();
    assert_eq!((all, seen.len()), (250, 250));
}
