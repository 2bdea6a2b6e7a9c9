//! What a quorum promises, on members that misbehave.

mod clocks;
mod jobs;
mod late_claims;
mod late_releases;
mod lost_releases;
mod rates;
mod restarts;
mod server;
mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Quorum;
use super::votes::Votes;
use crate::capability::{Feature, Info};
use crate::clock::{Clock, Moment, TestClock};
use crate::layers::{Fault, Faults, Reply, Request, Verb};
use crate::{
    Answer, Claim, Client, ErrorKind, Key, Loss, Memory, Options, QuorumTerms, Released, Store, Units,
};

const LEASE: Duration = Duration::from_secs(9);

/// A set of members that the clients of a test share, each client with a network of its own.
struct Set {
    clock: Arc<TestClock>,
    memories: Vec<Memory>,
}

/// A client and its ways to the members.
struct Seat {
    client: Client,
    quorum: Quorum,
    ways: Vec<Faults<Memory>>,
}

/// A wall clock that a test can set, even back.
#[derive(Debug)]
struct WallTime {
    real: Arc<TestClock>,
    ahead_micros: AtomicU64,
}

impl WallTime {
    /// Sets the clock to this far ahead of the slowest wall clock of the test.
    fn set_ahead(&self, by: Duration) {
        self.ahead_micros.store(by.as_micros() as u64, Ordering::SeqCst);
    }
}

impl Clock for WallTime {
    fn now(&self) -> Moment {
        let ahead = Duration::from_micros(self.ahead_micros.load(Ordering::SeqCst));
        self.real.now() + Duration::from_secs(1_000_000) + ahead
    }
}

impl Set {
    fn of(count: usize) -> Self {
        let clock = Arc::new(TestClock::new());
        Self { memories: (0..count).map(|_| Memory::with_clock(clock.clone())).collect(), clock }
    }

    async fn seat(&self) -> Seat {
        self.seat_ahead(Duration::ZERO).await
    }

    /// A client whose wall clock is ahead of the others by so much.
    async fn seat_ahead(&self, by: Duration) -> Seat {
        self.seat_with(self.wall_time(by)).await
    }

    fn wall_time(&self, ahead: Duration) -> Arc<WallTime> {
        let wall = WallTime { real: self.clock.clone(), ahead_micros: AtomicU64::new(0) };
        wall.set_ahead(ahead);
        Arc::new(wall)
    }

    /// A client with this wall clock.
    async fn seat_with(&self, wall: Arc<WallTime>) -> Seat {
        let ways: Vec<_> = self.memories.iter().cloned().map(Faults::new).collect();
        let builder = Quorum::builder().members(ways.clone()).number_clock(wall);
        let quorum = builder.without_quarantine().build().unwrap();
        let client = Client::builder().clock(self.clock.clone()).defaults(Options::new().lease(LEASE));
        Seat { client: client.connect(quorum.clone()).await.unwrap(), quorum, ways }
    }

    /// The token that each member says holds the key.
    async fn tokens(&self, key: &str) -> Vec<Option<u64>> {
        let mut tokens = Vec::new();
        for memory in &self.memories {
            let shown = memory.inspect(&Key::new(key).unwrap()).await.unwrap();
            tokens.push(shown.map(|shown| shown.holders[0].token));
        }
        tokens
    }
}

/// A member's number for the key becomes `last`.
async fn raise(memory: &Memory, last: u64) {
    let terms = QuorumTerms { keep: LEASE, min_age: Duration::ZERO, again: false };
    let claim = Claim::new(Key::new("k").unwrap(), crate::WHOLE, Units::Exactly(crate::WHOLE)).unwrap();
    let claim = Claim { token_above: last - 1, quorum: Some(terms), ..claim };
    assert!(matches!(memory.claim(&claim).await.unwrap(), Answer::Granted(grant) if grant.token == last));
    memory.release(&claim, None).await.unwrap();
}

/// Waits for what happens in the background.
async fn soon<F: Future<Output = bool>>(what: impl Fn() -> F) {
    for _ in 0..600 {
        if what().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain");
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_on_every_member_with_one_token() {
    let set = Set::of(5);
    let seat = set.seat().await;
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    assert_eq!(set.tokens("k").await, [Some(guard.token()); 5]);
    assert_eq!(guard.release().await.unwrap(), Released::Held);
    soon(async || set.tokens("k").await == [None; 5]).await;
    assert_eq!(seat.quorum.0.standings.len(), 0, "a claim that is over is remembered");
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_whichever_majority_grants() {
    let set = Set::of(3);
    let (one, two) = (set.seat().await, set.seat().await);
    let mut last = 0;
    for round in 0..30 {
        let seat = if round % 2 == 0 { &one } else { &two };
        seat.ways[round % 3].cut();
        let guard = seat.client.mutex("k").acquire().await.unwrap();
        assert!(guard.token() > last, "round {round}: {} after {last}", guard.token());
        last = guard.token();
        guard.release().await.unwrap();
        seat.ways[round % 3].heal();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_clock_is_behind_gets_a_larger_token_all_the_same() {
    let set = Set::of(3);
    let (ahead, behind) = (set.seat_ahead(Duration::from_secs(50)).await, set.seat().await);
    let first = ahead.client.mutex("k").acquire().await.unwrap();
    let token = first.token();
    first.release().await.unwrap();
    let second = behind.client.mutex("k").acquire().await.unwrap();
    assert!(second.token() > token, "{} after {token}", second.token());
}

#[tokio::test(start_paused = true)]
async fn a_minority_keeps_nothing() {
    let set = Set::of(3);
    let (one, two) = (set.seat().await, set.seat().await);
    // Its claim reaches only the third member, the other's only the first two.
    one.ways[2].cut();
    let guard = one.client.mutex("k").acquire().await.unwrap();
    assert_eq!(set.tokens("k").await, [Some(guard.token()), Some(guard.token()), None]);
    assert!(two.client.mutex("k").try_acquire().await.unwrap().is_none());
    assert_eq!(set.tokens("k").await[2], None, "a failed attempt left its claim behind");
    assert_eq!(two.quorum.0.standings.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_came_after_the_last_look_is_given_back() {
    let set = Set::of(3);
    let quorum = set.seat().await.quorum.0.clone();
    // Its lease does not end it while somebody waits for that.
    let lease = Some(Duration::from_secs(3600));
    let claim = Claim { lease, ..Claim::new(Key::new("k").unwrap(), 1, Units::Exactly(1)).unwrap() };
    let asked = quorum.asked(&claim, &quorum.standings.propose(claim.id, 0).unwrap().unwrap());
    let sent = asked.on(0);
    assert!(quorum.standings.asks(&claim.id, 0, &sent.id));
    let said = set.memories[0].claim(&sent).await;
    assert!(quorum.standings.heard(&claim.id, 0, &sent.id, &said));
    // The attempt fails, and its votes do not know of that grant.
    quorum.give_back(&asked, &Votes::none(3)).await;
    soon(async || set.tokens("k").await == [None; 3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_minority_of_members_may_be_away() {
    let set = Set::of(5);
    let seat = set.seat().await;
    seat.ways[0].cut();
    seat.ways[3].plan(|_| Fault { request: Request::Refused, ..Fault::default() });
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    tokio::time::sleep(LEASE * 3).await;
    assert!(guard.is_valid(), "three of five renew it");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_nothing_is_granted_and_holds_are_lost_in_time() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    for way in &seat.ways[..2] {
        way.plan(|_| Fault { request: Request::Refused, ..Fault::default() });
    }
    let error = seat.client.mutex("other").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("member 1") && text.contains("2 of 3 members"), "{text}");
    let started = tokio::time::Instant::now();
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(started.elapsed() <= LEASE);
}

#[tokio::test(start_paused = true)]
async fn a_slow_member_delays_nobody_and_its_late_grant_is_refused_after_the_release() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let late = Fault { before: Duration::from_secs(3), ..Fault::default() };
    seat.ways[1].once(Verb::Claim, late);
    let started = tokio::time::Instant::now();
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(500), "it waited for the slow member");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(set.tokens("k").await, [None; 3], "a claim came after its release and stayed");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_overtakes_a_grant_leaves_no_mark() {
    let set = Set::of(3);
    let seat = set.seat().await;
    // From now on every member remembers the key for its number: a mark would be one thing more.
    seat.client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let slow = Fault { before: Duration::from_millis(300), ..Fault::default() };
    seat.ways[1].once(Verb::Claim, slow);
    seat.client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(set.tokens("k").await, [None; 3], "the grant that came late was kept");
    assert_eq!(set.memories.iter().map(Memory::residue).collect::<Vec<_>>(), [1; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_lost_the_claim_gets_it_back_while_a_majority_holds() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    let token = guard.token();
    // One by one, all of them: the hold survives because each was mended before the next failed.
    for n in 0..3 {
        seat.ways[n].cut();
        tokio::time::sleep(LEASE * 2).await;
        assert_eq!(set.tokens("k").await[n], None, "it is over where nobody renewed it");
        seat.ways[n].heal();
        soon(async || set.tokens("k").await == [Some(token); 3]).await;
    }
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_is_slow_on_some_members_is_not_undone_by_mending() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    for memory in &set.memories {
        memory.evict(&Key::new("k").unwrap(), guard.token()).await.unwrap();
        // Time for a renewal that finds a majority, and wants to mend.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let lost = tokio::time::timeout(LEASE, guard.lost()).await;
    assert_eq!(lost, Ok(Loss::Gone));
    soon(async || set.tokens("k").await == [None; 3]).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_majority_has_lost_is_lost() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    for memory in &set.memories[..2] {
        memory.evict(&Key::new("k").unwrap(), guard.token()).await.unwrap();
    }
    assert_eq!(guard.lost().await, Loss::Gone);
}

#[tokio::test(start_paused = true)]
async fn lost_replies_are_asked_again_and_all_members_grant_one_number() {
    let set = Set::of(3);
    let seat = set.seat().await;
    for way in &seat.ways {
        way.once(Verb::Claim, Fault { reply: Reply::Lost, ..Fault::default() });
    }
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    soon(async || set.tokens("k").await == [Some(guard.token()); 3]).await;
}

#[tokio::test(start_paused = true)]
async fn members_that_may_have_forgotten_do_not_count() {
    let clock = Arc::new(TestClock::new());
    let old = [Memory::with_clock(clock.clone()), Memory::with_clock(clock.clone())];
    tokio::time::sleep(Duration::from_secs(61)).await;
    let young = Memory::with_clock(clock.clone());
    let members = [old[0].clone(), old[1].clone(), young.clone()];
    let connect = async |members: Vec<Memory>| {
        let quorum = Quorum::builder().members(members).build().unwrap();
        Client::builder().clock(clock.clone()).connect(quorum).await.unwrap()
    };
    let client = connect(members.to_vec()).await;
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();

    let restarted = vec![old[0].clone(), young, Memory::with_clock(clock.clone())];
    let client = connect(restarted).await;
    let error = client.mutex("k").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("too young"), "{error}");
    tokio::time::sleep(Duration::from_secs(61)).await;
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_down_at_the_start_joins_later() {
    let set = Set::of(3);
    let ways: Vec<_> = set.memories.iter().cloned().map(Faults::new).collect();
    ways[1].cut();
    let quorum = Quorum::builder().members(ways.clone()).without_quarantine().build().unwrap();
    let client = Client::builder().clock(set.clock.clone()).connect(quorum).await.unwrap();
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    ways[1].heal();
    let guard = client.mutex("k").acquire().await.unwrap();
    soon(async || {
        guard.renew(LEASE).await.unwrap();
        set.tokens("k").await == [Some(guard.token()); 3]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_quorum_that_cannot_be_one_is_refused() {
    let build = |count| Quorum::builder().members((0..count).map(|_| Memory::new())).build();
    for count in [0, 1, 2, 4, 6, 32] {
        assert_eq!(build(count).unwrap_err().kind(), ErrorKind::Invalid, "{count} members");
    }
    assert!(build(3).is_ok() && build(5).is_ok());
    let two = Quorum::builder().members([Memory::new(), Memory::new()]).any_number().build();
    assert!(two.is_ok());
    let twice = Quorum::builder().members([Memory::new(), Memory::new()]).member("member 1", Memory::new());
    assert_eq!(twice.build().unwrap_err().kind(), ErrorKind::Invalid);
    let no_time = Quorum::builder().members([Memory::new(), Memory::new(), Memory::new()]);
    assert_eq!(no_time.max_lease(Duration::ZERO).build().unwrap_err().kind(), ErrorKind::Invalid);
    let nested = Quorum::builder().members((0..3).map(|_| build(3).unwrap())).build();
    assert_eq!(nested.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn what_a_majority_cannot_decide_is_unsupported() {
    let set = Set::of(3);
    let client = set.seat().await.client;
    let info: &Info = client.info();
    let able: Vec<_> = Feature::ALL.iter().filter(|feature| info.supports(**feature)).collect();
    use Feature::*;
    assert_eq!(able, [&Mutex, &RwLock, &Election, &Job, &LockDelay, &List, &Evict, &Ask]);
    let error = client.semaphore("s", 2).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = client.mutex("k").with(Options::new().lease(Duration::from_secs(61))).try_acquire().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
}
