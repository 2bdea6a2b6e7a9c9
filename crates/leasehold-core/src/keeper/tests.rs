//! The runtime on the memory store, in paused time.

mod ended;
mod outages;
mod places;
mod scale;
mod self_wait;
mod sessions_under_faults;
mod shared_leases;
mod unpolled;
mod waking;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{TICK, TestClock};
use crate::{Client, ErrorKind, Guard, Loss, Memory, Options, Released};

const LEASE: Duration = Duration::from_secs(6);
const PATIENCE_AND_MORE: Duration = Duration::from_secs(60);

struct World {
    clock: Arc<TestClock>,
    store: Memory,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        Self { store: Memory::with_clock(clock.clone()), clock }
    }

    async fn client(&self) -> Client {
        let defaults = Options::new().lease(LEASE);
        let builder = Client::builder().clock(self.clock.clone()).defaults(defaults);
        builder.connect(self.store.clone()).await.unwrap()
    }

    /// Waits, in virtual time, until nothing is left in the store.
    async fn drained(&self) {
        let drained = async {
            while self.store.residue() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), drained).await.expect("something was left behind");
    }
}

async fn elapsed(work: impl Future) -> Duration {
    let start = tokio::time::Instant::now();
    work.await;
    start.elapsed()
}

/// Polls once.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_renewed_for_as_long_as_it_lives() {
    let world = World::new();
    let client = world.client().await;
    let guard = client.mutex("k").acquire().await.unwrap();
    for _ in 0..100 {
        tokio::time::sleep(LEASE / 4).await;
        assert!(guard.is_valid());
        assert!(guard.valid_for() > LEASE / 3);
    }
    assert_eq!(guard.release().await.unwrap(), Released::Held);
    assert_eq!(world.store.residue(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_hands_over_at_once_with_a_larger_token() {
    let world = World::new();
    let (one, two) = (world.client().await, world.client().await);
    let first = one.mutex("k").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { two.mutex("k").acquire().await.unwrap() });
    tokio::time::sleep(LEASE * 10).await;
    assert!(!waiter.is_finished());
    let token = first.token();
    let took = elapsed(async {
        first.release().await.unwrap();
        assert!(waiter.await.unwrap().token() > token);
    });
    assert_eq!(took.await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_after_any_number_of_polls_leaves_nothing() {
    for polls in 0..4 {
        let world = World::new();
        let (one, two) = (world.client().await, world.client().await);
        let guard = one.mutex("k").acquire().await.unwrap();
        let lock = two.mutex("k");
        let mut acquire = Box::pin(lock.acquire());
        for _ in 0..polls {
            assert!(poll(&mut acquire).is_pending());
        }
        if polls > 1 {
            // Promoted, and dropped before it could know.
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        drop(acquire);
        world.drained().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_outside_of_a_runtime_is_released() {
    let world = World::new();
    let client = world.client().await;
    let guard = client.mutex("k").acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    world.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_client_leaves_its_guard_renewed() {
    let world = World::new();
    let guard = world.client().await.mutex("k").acquire().await.unwrap();
    tokio::time::sleep(LEASE * 5).await;
    assert!(guard.is_valid());
    drop(guard);
    world.drained().await;
}

#[tokio::test(start_paused = true)]
async fn close_releases_everything_and_ends_waits_with_an_error() {
    let world = World::new();
    let (one, two) = (world.client().await, world.client().await);
    let (held, other) =
        (one.mutex("held").acquire().await.unwrap(), two.mutex("other").acquire().await.unwrap());
    let lock = two.mutex("held");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    two.close().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(other.lost().await, Loss::Closed);
    assert_eq!(two.mutex("x").acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let rest = one.inspect("held").await.unwrap().unwrap();
    assert_eq!((rest.holders.len(), rest.waiters.len()), (1, 0));
    held.release().await.unwrap();
    assert_eq!(world.store.residue(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_suspend_is_noticed_by_the_guard_at_once_and_by_the_signal_within_a_tick() {
    let world = World::new();
    let client = world.client().await;
    let guard = client.mutex("k").acquire().await.unwrap();
    let signal = guard.signal();
    let lost = tokio::spawn(async move { (signal.lost().await, tokio::time::Instant::now()) });
    tokio::task::yield_now().await;
    world.clock.jump(Duration::from_secs(3600));
    let resumed = tokio::time::Instant::now();
    assert!(!guard.is_valid());
    let (why, at) = lost.await.unwrap();
    assert_eq!(why, Loss::Expired);
    assert!(at - resumed <= TICK);
    tokio::time::sleep(LEASE).await;
    assert!(!guard.is_valid(), "a lost guard came back");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_and_can_be_renewed_by_hand() {
    let world = World::new();
    let client = world.client().await;
    let lock = client.mutex("k").with(Options::new().fixed(LEASE));
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(LEASE / 2).await;
    guard.renew(LEASE * 2).await.unwrap();
    tokio::time::sleep(LEASE).await;
    assert!(guard.is_valid());
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_eq!(guard.renew(LEASE).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_that_had_to_wait_starts_in_full() {
    let world = World::new();
    let client = world.client().await;
    let long = PATIENCE_AND_MORE;
    let first = client.mutex("k").acquire().await.unwrap();
    let lock = client.mutex("k").with(Options::new().fixed(long));
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_secs(3)).await;
    first.release().await.unwrap();
    let guard = waiter.await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(guard.valid_for() > long * 8 / 10);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_guard_that_is_renewed() {
    let world = World::new();
    let client = world.client().await;
    let lock = client.mutex("k").with(Options::new().lease(LEASE).max_hold(LEASE * 3));
    let guard = lock.acquire().await.unwrap();
    let held = elapsed(async { assert_eq!(guard.lost().await, Loss::HeldTooLong) }).await;
    assert!(held >= LEASE * 3 && held < LEASE * 3 + TICK, "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_guard_is_lost_at_once_also_with_a_fixed_lease() {
    for options in [Options::new(), Options::new().fixed(LEASE)] {
        let world = World::new();
        let (one, two) = (world.client().await, world.client().await);
        let guard = one.mutex("k").with(options).acquire().await.unwrap();
        assert!(two.evict("k", guard.token()).await.unwrap());
        let took = elapsed(async { assert_eq!(guard.lost().await, Loss::Gone) }).await;
        assert!(took < Duration::from_millis(10), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_does_not_extend_a_fixed_lease() {
    let world = World::new();
    let client = world.client().await;
    let guard = client.mutex("k").with(Options::new().fixed(LEASE)).acquire().await.unwrap();
    tokio::time::sleep(LEASE / 2).await;
    client.keeper().look(guard.key());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(guard.valid_for() < LEASE / 2);
}

#[tokio::test(start_paused = true)]
async fn a_promoted_claim_that_nobody_picks_up_goes_to_the_next() {
    let world = World::new();
    let (one, two) = (world.client().await, world.client().await);
    let first = one.mutex("k").acquire().await.unwrap();
    let lock = two.mutex("k");
    let mut forgotten = Box::pin(lock.acquire());
    assert!(poll(&mut forgotten).is_pending());
    let next = tokio::spawn(async move { one.mutex("k").acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.release().await.unwrap();
    let took = elapsed(async { assert!(next.await.unwrap().is_valid()) }).await;
    assert!(took <= LEASE * 2, "{took:?}");
    drop(forgotten);
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_replaced_when_its_lease_ends() {
    let world = World::new();
    let mut claim =
        crate::Claim::new(crate::Key::new("k").unwrap(), crate::WHOLE, crate::Units::Exactly(crate::WHOLE))
            .unwrap();
    claim.lease = Some(LEASE);
    // A process that died: it claimed and never comes back.
    crate::Store::claim(&world.store, &claim).await.unwrap();
    let client = world.client().await;
    let took = elapsed(async { assert!(client.mutex("k").acquire().await.unwrap().is_valid()) }).await;
    assert!(
        took >= LEASE - Duration::from_millis(2) && took <= LEASE + Duration::from_millis(50),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn many_locks_are_renewed_together() {
    let world = World::new();
    let client = world.client().await;
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..500 {
        guards.push(client.mutex(format!("k{n}")).acquire().await.unwrap());
    }
    tokio::time::sleep(LEASE * 5).await;
    assert!(guards.iter().all(Guard::is_valid));
    drop(guards);
    world.drained().await;
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_when_nobody_needs_it() {
    let world = World::new();
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let client = world.client().await;
    drop(client.mutex("k").acquire().await.unwrap());
    drop(client);
    world.drained().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
}

#[test]
fn guards_outlive_their_runtime_without_panic_and_are_lost_by_their_deadline() {
    let store = Memory::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lease = Duration::from_millis(300);
    let guard = runtime.block_on(async {
        let client = Client::new(store).await.unwrap();
        client.mutex("k").with(Options::new().lease(lease)).acquire().await.unwrap()
    });
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(other.block_on(guard.lost()), Loss::Expired);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_promotion_that_overtakes_the_reply_is_believed_and_lasts() {
    use super::entry::Phase;
    use super::leases::LeaseKey;
    use super::tables::{Stand, Tables};
    use crate::clock::Clock;
    use crate::hold::Hold;
    use crate::{Answer, Claim, Key, Place, Promotion, Renewal, Store, Units};

    let clock = Arc::new(TestClock::new());
    let mut tables = Tables::new(Memory::new().info().clone(), LEASE);
    let claim = Claim::new(Key::new("k").unwrap(), 1, Units::Exactly(1)).unwrap();
    let hold = Arc::new(Hold::new(clock.clone(), None));
    tables.enter(claim.clone(), hold.clone(), Renewal::Automatic, clock.now());
    let sent = clock.now();
    let promotion = Promotion { key: claim.key.clone(), inbox: claim.inbox, seat: 7, token: 9, units: 1 };
    tables.promoted(&promotion, clock.now());
    let place = Place { seat: 7, ahead: 0, look_in: LEASE, held: 0, lease: Some(claim.patience) };
    let stand = tables.answered_asker(&claim.id, sent, &Answer::Waiting(place), clock.now());
    assert_eq!((stand, hold.token()), (Stand::Held, 9));
    // In the hands of whoever asked, not waiting to be picked up and given back.
    assert_eq!(tables.entries[&claim.id].phase, Phase::Held);
    assert!(tables.leases[&LeaseKey::Own(claim.id)].due.is_some());
}
