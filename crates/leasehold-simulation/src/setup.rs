//! What a schedule is made of: everything here follows from its seed.

use std::time::Duration;

use fastrand::Rng;
use leasehold_core::WHOLE;

/// How long a client waits for one answer.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest that a message is under way. Twice this (late, and repeated late) is less than the time for which a
/// withdrawn claim is refused: the runtime promises nothing about messages that are older.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_millis(900);

/// The leases in use.
pub(crate) const LEASES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(3)];

/// The longest of them.
pub(crate) const LONGEST_LEASE: Duration = LEASES[2];

/// The longest that a process is stopped.
pub(crate) const LONGEST_STOP: Duration = Duration::from_millis(4500);

/// How many clients there are at a time, and how many workers each of them has.
pub(crate) const CLIENTS: usize = 3;
pub(crate) const WORKERS: usize = 2;

/// How far the clocks are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rates {
    /// Within what the runtime allows for: 0.95 to 1.05.
    #[default]
    Allowed,
    /// Clients at 0.9 and the store at 1.1: exclusion cannot hold, and the checker must say so.
    TooFarApart,
}

/// Which kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leases {
    /// A lease per claim.
    PerClaim,
    /// Sessions that carry many claims.
    Sessions,
}

/// What workers do; a schedule does some of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the primitives")]
pub enum Act {
    Mutex,
    Permits,
    ReadWrite,
    Election,
    Job,
    Latch,
    LatchRounds,
    Multi,
}

impl Act {
    const ALL: [Self; 8] = [
        Self::Mutex,
        Self::Permits,
        Self::ReadWrite,
        Self::Election,
        Self::Job,
        Self::Latch,
        Self::LatchRounds,
        Self::Multi,
    ];
}

/// A thing that can go wrong and that can be left out, to look for others behind a known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Changes of a claim that arrive a second time.
    RepeatedChanges,
    /// Renewals of a session that arrive after claims that were sent later.
    LateRounds,
    /// Guards that are renewed with a shorter lease than before.
    ShorterRenewals,
    /// Administrators who evict.
    Evictions,
    /// Clients that are closed.
    Closing,
    /// Clients that crash.
    Crashes,
    /// Tickets.
    HandOvers,
    /// Growing and shrinking of a read-write hold.
    Upgrades,
    /// Futures that are dropped.
    Cancellations,
    /// Futures that are kept, and not polled for a while.
    Forgetting,
    /// Promotions that a stranger sends.
    Forgeries,
    /// A latch that is set and counted down again and again.
    LatchRounds,
    /// Looks at fixed leases: they must not extend them.
    FixedLeaseLooks,
}

impl Trouble {
    /// All of them with the words that the command line has for them.
    pub const ALL: [(&'static str, Self); 13] = [
        ("shorter-renewals", Self::ShorterRenewals),
        ("late-rounds", Self::LateRounds),
        ("repeated-changes", Self::RepeatedChanges),
        ("evictions", Self::Evictions),
        ("closing", Self::Closing),
        ("crashes", Self::Crashes),
        ("hand-overs", Self::HandOvers),
        ("upgrades", Self::Upgrades),
        ("cancellations", Self::Cancellations),
        ("forgetting", Self::Forgetting),
        ("forgeries", Self::Forgeries),
        ("latch-rounds", Self::LatchRounds),
        ("fixed-lease-looks", Self::FixedLeaseLooks),
    ];
}

/// What all schedules of a run have in common.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many events a schedule has at least.
    pub events: u32,
    /// How far the clocks are apart.
    pub rates: Rates,
    /// The kind of store; `None` for either.
    pub leases: Option<Leases>,
    /// What does not happen.
    pub without: Vec<Trouble>,
    /// The store believes forged promotions: a planted bug, which must be found.
    pub believes_forgeries: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let (rates, without) = (Rates::default(), Vec::new());
        Self { events: 200, rates, leases: None, without, believes_forgeries: false }
    }
}

impl Setup {
    pub(crate) fn has(&self, trouble: Trouble) -> bool {
        !self.without.contains(&trouble)
    }
}

/// What one seed makes of a setup.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) leases: Leases,
    pub(crate) store_rate: u64,
    pub(crate) client_rates: [u64; CLIENTS],
    pub(crate) acts: Vec<Act>,
    pub(crate) latch_count: u64,
    /// The leases in use: with one for all, claims share sessions, and tasks pass locks on.
    pub(crate) lengths: Vec<Duration>,
    /// One of so many acquires barges.
    pub(crate) barging: u32,
    /// The fewest permits that a resize leaves. With fewer than [`PERMITS`], claims that ask for more cannot be served.
    pub(crate) least_permits: u64,
}

impl Scene {
    /// Whether every claim for permits can be served in its turn.
    pub(crate) fn all_permits_fit(&self) -> bool {
        self.least_permits >= PERMITS
    }
}

impl Scene {
    pub(crate) fn new(setup: &Setup, random: &mut Rng) -> Self {
        let either = if random.bool() { Leases::PerClaim } else { Leases::Sessions };
        // Extremes are what breaks: take them often.
        let mut rate = || *random.choice(&[950, 1000, 1050]).unwrap_or(&1000) + random.u64(0..1);
        let (store_rate, client_rates) = match setup.rates {
            Rates::Allowed => (rate(), [(); CLIENTS].map(|()| rate())),
            Rates::TooFarApart => (1100, [900; CLIENTS]),
        };
        // Few kinds at a time, so that workers meet.
        let few = random.usize(1..=3);
        let known = |act: &Act| *act != Act::LatchRounds || setup.has(Trouble::LatchRounds);
        let acts = random.choose_multiple(Act::ALL.into_iter().filter(known), few);
        let leases = setup.leases.unwrap_or(either);
        let lengths =
            if random.bool() { LEASES.to_vec() } else { vec![LEASES[random.usize(0..LEASES.len())]] };
        let (latch_count, barging) = (random.u64(1..=30), if random.u32(0..6) == 0 { 1 } else { 12 });
        // No draw of its own: known seeds keep their stories.
        let least_permits = if latch_count.is_multiple_of(2) { 1 } else { PERMITS };
        Self { leases, store_rate, client_rates, acts, latch_count, lengths, barging, least_permits }
    }
}

/// A key of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot(pub(crate) usize);

impl Spot {
    pub(crate) const MUTEXES: [Self; 3] = [Self(0), Self(1), Self(2)];
    pub(crate) const PERMITS: Self = Self(3);
    pub(crate) const READ_WRITE: Self = Self(4);
    pub(crate) const THRONE: Self = Self(5);
    pub(crate) const JOB: Self = Self(6);
    pub(crate) const LATCH: Self = Self(7);
    /// The latch that is set again and again.
    pub(crate) const ROUNDS: Self = Self(8);
    pub(crate) const ALL: [Self; 9] = [
        Self(0),
        Self(1),
        Self(2),
        Self::PERMITS,
        Self::READ_WRITE,
        Self::THRONE,
        Self::JOB,
        Self::LATCH,
        Self::ROUNDS,
    ];

    pub(crate) fn name(self) -> &'static str {
        ["m0", "m1", "m2", "permits", "rw", "throne", "job", "latch", "rounds"][self.0]
    }

    /// The most units that may ever be held together.
    pub(crate) fn limit(self) -> u64 {
        if self == Self::PERMITS { MOST_PERMITS } else { WHOLE }
    }
}

/// The permits that everybody names, and the most that a resize makes of them.
pub(crate) const PERMITS: u64 = 3;
pub(crate) const MOST_PERMITS: u64 = 4;
