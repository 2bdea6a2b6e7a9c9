//! A world of its own: clients of one quorum, whose ways to the members fail independently of each other.
//!
//! Every client has a network to each member, which delays, refuses and loses requests, and delivers releases seconds
//! late. The wall clocks of the clients, which their tokens follow, are apart. One lock is contended. Two kinds of
//! schedule: *rough* ones, in which networks fail, and *crowded* ones, in which a client with a fast clock takes the lock
//! again and again, and a client with a slow clock must still get it.
//!
//! Checked: no two guards are valid at the same time, tokens rise, every client is served within a bound once the network
//! is good, and nothing is left on the members at the end.

mod client;
mod crowded;
mod judge;
mod network;
mod rough;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Key, Memory, Result, Store, TestClock};

use judge::Judge;

/// The lock that everybody wants.
const KEY: &str = "k";
/// The lease of every claim.
const LEASE: Duration = Duration::from_secs(3);
/// The longest that the quorum allows: also how far the clocks may be apart.
const MAX_LEASE: Duration = Duration::from_secs(10);
/// How long a member may take, and how long a client waits for the quorum.
const MEMBER_TIMEOUT: Duration = Duration::from_millis(300);
const CALL_TIMEOUT: Duration = Duration::from_millis(1500);
/// Within this time a client gets the lock on a good network, whatever the others do.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// What came of a schedule.
#[derive(Debug)]
pub struct QuorumVerdict {
    /// Which it was.
    pub seed: u64,
    /// The law that was broken first, if any.
    pub violation: Option<String>,
    /// The story, line by line.
    pub story: Vec<String>,
    /// What happened in it.
    pub coverage: QuorumCoverage,
}

/// How often what happened, in one schedule or in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuorumCoverage {
    /// Schedules that were run.
    pub schedules: u64,
    /// Guards that were handed out.
    pub grants: u64,
    /// Waits that ended without a guard.
    pub waits_in_vain: u64,
    /// Attempts that ended with an error, because too few members took part.
    pub errors: u64,
    /// Guards that were lost.
    pub lost: u64,
    /// Acquires and releases that were dropped half-way.
    pub cancellations: u64,
    /// Requests or replies that were late, releases among them.
    pub late: u64,
    /// Requests that did not arrive.
    pub lost_requests: u64,
    /// Replies that did not arrive.
    pub lost_replies: u64,
    /// Requests that arrived when their caller had given up.
    pub orphaned: u64,
}

impl QuorumCoverage {
    fn all(&self) -> [(&'static str, u64); 10] {
        [
            ("schedules", self.schedules),
            ("grants", self.grants),
            ("waits in vain", self.waits_in_vain),
            ("errors", self.errors),
            ("lost", self.lost),
            ("cancellations", self.cancellations),
            ("late", self.late),
            ("lost requests", self.lost_requests),
            ("lost replies", self.lost_replies),
            ("orphaned", self.orphaned),
        ]
    }

    /// What no run may be without.
    pub fn missing(&self) -> Vec<&'static str> {
        self.all().into_iter().filter(|(_, n)| *n == 0).map(|(name, _)| name).collect()
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.grants += other.grants;
        self.waits_in_vain += other.waits_in_vain;
        self.errors += other.errors;
        self.lost += other.lost;
        self.cancellations += other.cancellations;
        self.late += other.late;
        self.lost_requests += other.lost_requests;
        self.lost_replies += other.lost_replies;
        self.orphaned += other.orphaned;
    }
}

impl fmt::Display for QuorumCoverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all().iter().try_for_each(|(name, n)| writeln!(f, "{name:>18} {n:>10}"))
    }
}

/// Runs the schedule of this seed. As with [`run`](crate::run), the ids of claims do not follow from it.
///
/// # Panics
/// When the runtime cannot be built.
pub fn run_quorum(seed: u64) -> QuorumVerdict {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without input and output needs nothing from the system");
    let judge = Arc::new(Judge::default());
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = judge.failed.notified() => {}
            played = play(&judge, Rng::with_seed(seed)) => {
                if let Err(error) = played {
                    judge.violated(&format!("a client cannot connect: {error}"));
                }
            }
        }
    });
    drop(runtime);
    let (violation, story, coverage) = judge.verdict();
    QuorumVerdict { seed, violation, story, coverage: QuorumCoverage { schedules: 1, ..coverage } }
}

async fn play(judge: &Arc<Judge>, mut random: Rng) -> Result<()> {
    let count = if random.u32(0..4) == 0 { 5 } else { 3 };
    let rate = |random: &mut Rng| [950, 1000, 1050][random.usize(0..3)];
    let member = |_| Memory::with_clock(Arc::new(TestClock::with_rate(rate(&mut random))));
    let members: Vec<Memory> = (0..count).map(member).collect();
    if random.u32(0..4) == 0 {
        crowded::play(judge, &members, random).await?;
    } else {
        rough::play(judge, &members, random).await?;
    }
    // What a late message left behind has ended with its lease by now.
    tokio::time::sleep(LEASE * 4).await;
    for (n, member) in members.iter().enumerate() {
        if let Some(left) = member.inspect(&Key::new(KEY)?).await? {
            judge.violated(&format!("member {n} still has {left:?}"));
        }
    }
    Ok(())
}
