//! A client of the quorum, with a network to each member and clocks of its own.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::layers::Faults;
use leasehold_core::{Client, Guard, Memory, Options, Quorum, Result, TestClock};

use super::judge::Judge;
use super::network::{Condition, Network};
use super::{CALL_TIMEOUT, KEY, LEASE, MAX_LEASE, MEMBER_TIMEOUT, SERVED_WITHIN};

/// Later than any clock of a test starts: a clock can then be behind.
const NOW: Duration = Duration::from_secs(1_000_000);

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) number: usize,
    pub(super) client: Client,
    pub(super) networks: Vec<Arc<Network>>,
    ways: Vec<Faults<Memory>>,
    judge: Arc<Judge>,
}

impl Peer {
    /// A client whose wall clock is ahead of the slowest one by so much.
    pub(super) async fn start(
        judge: &Arc<Judge>,
        number: usize,
        members: &[Memory],
        ahead: Duration,
        random: &mut Rng,
    ) -> Result<Self> {
        let ways: Vec<_> = members.iter().cloned().map(Faults::new).collect();
        let wall = Arc::new(TestClock::new());
        wall.jump(NOW + ahead);
        let builder = Quorum::builder().members(ways.clone()).max_lease(MAX_LEASE);
        let builder = builder.member_timeout(MEMBER_TIMEOUT).without_quarantine().number_clock(wall);
        let clock = Arc::new(TestClock::with_rate([950, 1000, 1050][random.usize(0..3)]));
        let client = Client::builder().clock(clock).call_timeout(CALL_TIMEOUT);
        let client = client.defaults(Options::new().lease(LEASE)).connect(builder.build()?).await?;
        let networks: Vec<_> = members.iter().map(|_| Network::new(random.fork())).collect();
        for (way, network) in ways.iter().zip(&networks) {
            let network = network.clone();
            way.plan(move |call| network.fault(call));
        }
        judge.note(number, &format!("starts, its clock {ahead:?} ahead"));
        Ok(Self { number, client, networks, ways, judge: judge.clone() })
    }

    pub(super) fn set_networks(&self, condition: Condition) {
        self.networks.iter().for_each(|network| network.set(condition));
    }

    /// Waits for the lock; an error counts as a wait in vain.
    pub(super) async fn acquire_within(&self, limit: Duration) -> Option<Guard> {
        match self.client.mutex(KEY).acquire_within(limit).await {
            Ok(Some(guard)) => {
                self.judge.granted(self.number, &guard);
                return Some(guard);
            }
            Ok(None) => self.judge.count(|coverage| coverage.waits_in_vain += 1),
            Err(error) => {
                self.judge.note(self.number, &format!("fails: {error}"));
                self.judge.count(|coverage| coverage.errors += 1);
                if !error.is_retryable() {
                    self.judge.violated(&format!("client {}: unexpected error: {error}", self.number));
                }
            }
        }
        None
    }

    /// On a good network every client is served, no matter how slow its clock is.
    pub(super) async fn must_be_served(&self) -> Option<Guard> {
        let until = tokio::time::Instant::now() + SERVED_WITHIN;
        let mut guard = None;
        while guard.is_none() && tokio::time::Instant::now() < until {
            let left = until - tokio::time::Instant::now();
            guard = self.acquire_within(left).await;
        }
        if guard.is_none() {
            self.judge.violated(&format!("client {} starves: {SERVED_WITHIN:?} in vain", self.number));
        }
        guard
    }

    pub(super) async fn release(&self, guard: Guard) {
        if !guard.is_valid() {
            self.judge.count(|coverage| coverage.lost += 1);
        }
        self.judge.note(self.number, "releases");
        // An error is as good: the keeper goes on, and the lease ends what it cannot release.
        let _ = guard.release().await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for way in &self.ways {
            let injected = way.injected();
            self.judge.count(|coverage| {
                coverage.late += injected.late;
                coverage.lost_requests += injected.requests_lost;
                coverage.lost_replies += injected.replies_lost;
                coverage.orphaned += injected.orphaned;
            });
        }
    }
}
