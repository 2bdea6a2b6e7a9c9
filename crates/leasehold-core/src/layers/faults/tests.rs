//! Each fault does what it says, and the same seed does it again.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::claim::Units;
use crate::clock::TestClock;
use crate::memory::Memory;

fn claim() -> Claim {
    Claim::new(Key::new("k").unwrap(), 1, Units::Exactly(1)).unwrap()
}

fn store() -> Faults<Memory> {
    Faults::new(Memory::with_clock(Arc::new(TestClock::new())))
}

async fn holders(store: &Faults<Memory>) -> usize {
    let shown = store.inner().inspect(&Key::new("k").unwrap()).await.unwrap();
    shown.map_or(0, |shown| shown.holders.len() + shown.waiters.len())
}

/// Polls once, as a caller that then stops waiting.
async fn start_and_drop<T>(future: impl Future<Output = T>) {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        drop(future.as_mut().poll(context));
        std::task::Poll::Ready(())
    })
    .await;
}

const LATE: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_unavailable_and_does_not_happen() {
    let store = store();
    store.once(Verb::Claim, Fault { request: Request::Refused, ..Fault::default() });
    assert_eq!(store.claim(&claim()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(holders(&store).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_indeterminate_and_does_not_happen() {
    let store = store();
    store.once(Verb::Claim, Fault { request: Request::Lost, ..Fault::default() });
    assert_eq!(store.claim(&claim()).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(holders(&store).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_indeterminate_and_happened() {
    let store = store();
    store.once(Verb::Claim, Fault { reply: Reply::Lost, ..Fault::default() });
    assert_eq!(store.claim(&claim()).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(holders(&store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_never_comes_leaves_the_caller_waiting() {
    let store = store();
    store.once(Verb::Claim, Fault { reply: Reply::Never, ..Fault::default() });
    assert!(tokio::time::timeout(LATE, store.claim(&claim())).await.is_err());
    assert_eq!(holders(&store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_arrives_late_although_its_caller_has_gone() {
    let store = store();
    let claim = claim();
    store.once(Verb::Claim, Fault { before: LATE, ..Fault::default() });
    start_and_drop(store.claim(&claim)).await;
    assert_eq!(store.release(&claim, None).await.unwrap(), Released::Gone);
    tokio::time::sleep(LATE * 2).await;
    assert_eq!(holders(&store).await, 1, "the claim arrived after its withdrawal");
    assert_eq!(store.injected().orphaned, 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_reports_what_was_true_when_it_was_sent() {
    let store = store();
    let started = tokio::time::Instant::now();
    store.once(Verb::Claim, Fault { after: LATE, ..Fault::default() });
    assert!(matches!(store.claim(&claim()).await.unwrap(), Answer::Granted(_)));
    assert!(started.elapsed() >= LATE);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_is_carried_out_again_later() {
    let store = store();
    let claim = claim();
    store.once(Verb::Claim, Fault { again_after: Some(LATE), ..Fault::default() });
    store.claim(&claim).await.unwrap();
    store.release(&claim, None).await.unwrap();
    assert_eq!(holders(&store).await, 0);
    tokio::time::sleep(LATE * 2).await;
    assert_eq!(holders(&store).await, 1, "the copy brought the claim back");
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Hint>>);

impl Wake for Heard {
    fn promoted(&self, promotion: &Promotion) {
        self.0.lock().unwrap().push(Hint::Promoted(promotion.clone()));
    }
    fn look(&self, key: &Key) {
        self.0.lock().unwrap().push(Hint::Look(key.clone()));
    }
    fn look_all(&self) {
        self.0.lock().unwrap().push(Hint::LookAll);
    }
    fn is_gone(&self) -> bool {
        false
    }
}

/// How many hints a promotion under this fault has brought: at once, in the end, and when held ones go.
async fn heard(fault: WakeFault) -> (usize, usize, usize) {
    let (store, heard) = (store(), Arc::new(Heard::default()));
    let count = || heard.0.lock().unwrap().len();
    store.open(Inbox(0), heard.clone()).await.unwrap();
    store.plan_wakes(move |_| fault);
    let first = claim();
    store.claim(&first).await.unwrap();
    store.claim(&claim()).await.unwrap();
    store.release(&first, None).await.unwrap();
    let at_once = count();
    tokio::time::sleep(LATE * 2).await;
    let in_the_end = count();
    store.deliver_held();
    (at_once, in_the_end, count())
}

#[tokio::test(start_paused = true)]
async fn hints_are_delivered_dropped_late_repeated_or_held() {
    assert_eq!(heard(WakeFault::Deliver).await, (1, 1, 1));
    assert_eq!(heard(WakeFault::Drop).await, (0, 0, 0));
    assert_eq!(heard(WakeFault::Late(LATE)).await, (0, 1, 1));
    assert_eq!(heard(WakeFault::Twice(LATE)).await, (1, 2, 2));
    assert_eq!(heard(WakeFault::Hold).await, (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_gets_through_a_cut_until_it_heals() {
    let store = store();
    store.cut();
    assert!(tokio::time::timeout(LATE, store.claim(&claim())).await.is_err());
    assert_eq!(holders(&store).await, 0);
    store.heal();
    assert!(matches!(store.claim(&claim()).await.unwrap(), Answer::Granted(_)));
}

/// Two hundred calls under these odds, as the caller sees them.
async fn run(seed: u64) -> (Vec<String>, Injected) {
    let memory = Memory::with_clock(Arc::new(TestClock::new()));
    let odds = Odds {
        late: 200,
        longest: Duration::from_secs(1),
        refused: 50,
        request_lost: 50,
        reply_lost: 50,
        silent: 20,
        duplicated: 50,
        ..Odds::default()
    };
    let store = Faults::seeded(memory, seed, odds);
    let mut seen = Vec::new();
    for id in 0..200_u8 {
        let mut claim = claim();
        claim.id = crate::claim::ClaimId::from_bytes([id % 7; 16]);
        let call = tokio::time::timeout(Duration::from_secs(3), store.claim(&claim));
        seen.push(format!("{:?}", call.await.map(|answer| answer.map_err(|error| error.kind()))));
        drop(tokio::time::timeout(Duration::from_secs(3), store.release(&claim, None)).await);
    }
    (seen, store.injected())
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_faults() {
    let (seen, injected) = run(1).await;
    assert_eq!((&seen, injected), (&run(1).await.0, injected));
    assert_ne!(seen, run(2).await.0);
    let Injected { late, refused, requests_lost, replies_lost, duplicated, .. } = injected;
    let all = [late, refused, requests_lost, replies_lost, duplicated];
    assert!(all.iter().all(|count| *count > 0), "{injected:?}");
}
