//! Putting a quorum together, and refusing what would not be one.

use std::sync::Arc;
use std::time::Duration;

use super::about::About;
use super::ledger::Standings;
use super::members::Member;
use super::numbers::{Numbers, WallClock};
use super::{Inner, Quorum};
use crate::capability::{Capability, Feature, Info, Leases, TokenStrength};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// What works by majority. All members must be able to do it.
const CAPABILITIES: &[Capability] = &[
    Capability::Sight,
    Capability::Readers,
    Capability::Units,
    Capability::Value,
    Capability::Tail,
    Capability::LockDelay,
    Capability::TokenAbove,
    Capability::List,
    Capability::Evict,
    Capability::Ask,
];

/// The most members: each is asked for every claim.
const MOST: usize = 31;

/// Settings of a [`Quorum`].
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::{Memory, Quorum};
/// let quorum = Quorum::builder()
///     .member("berlin", Memory::new())
///     .member("paris", Memory::new())
///     .member("rome", Memory::new())
///     .max_lease(Duration::from_secs(30))
///     .build()?;
/// assert!(Quorum::builder().members([Memory::new(), Memory::new()]).build().is_err()); // two survive no failure
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[must_use = "a builder does nothing until it builds"]
#[derive(Debug)]
pub struct QuorumBuilder {
    members: Vec<(String, Arc<dyn Store>)>,
    max_lease: Duration,
    quarantine: bool,
    any_number: bool,
    member_timeout: Duration,
    number_clock: Arc<dyn Clock>,
}

impl QuorumBuilder {
    pub(super) fn new() -> Self {
        Self {
            members: Vec::new(),
            max_lease: Duration::from_secs(60),
            quarantine: true,
            any_number: false,
            member_timeout: Duration::from_secs(1),
            number_clock: Arc::new(WallClock),
        }
    }

    /// Adds a member. Its name appears in errors, and no two have the same: a server that is named twice has two votes.
    pub fn member(mut self, name: impl Into<String>, store: impl Store) -> Self {
        self.members.push((name.into(), Arc::new(store)));
        self
    }

    /// Adds members that are known by their number.
    pub fn members<S: Store>(mut self, stores: impl IntoIterator<Item = S>) -> Self {
        for store in stores {
            let name = format!("member {}", self.members.len() + 1);
            self = self.member(name, store);
        }
        self
    }

    /// The longest lease that can be asked for; also how long a member that lost its memory does not count, and
    /// how long keys remember their last token, and how far the clocks of clients may be apart. The same for all clients.
    /// Default 60 s.
    pub fn max_lease(mut self, limit: Duration) -> Self {
        self.max_lease = limit;
        self
    }

    /// Lets members count whose memory is younger than `max_lease`. Only where nothing can have been forgotten: a set
    /// that was just started for the first time, or members that never lose anything.
    pub fn without_quarantine(mut self) -> Self {
        self.quarantine = false;
        self
    }

    /// Allows an even number of members, and fewer than three. An even number survives no more failures than one
    /// member less, and two survive none.
    pub fn any_number(mut self) -> Self {
        self.any_number = true;
        self
    }

    /// How long one member may take to answer before the others decide without it. Shorter than the call timeout of
    /// the clients, or one slow member can make their calls fail. Default 1 s.
    pub fn member_timeout(mut self, limit: Duration) -> Self {
        self.member_timeout = limit;
        self
    }

    /// The clock that tokens follow, instead of the system's wall clock. For tests: the clocks of two clients can differ,
    /// and simulated time works.
    pub fn number_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.number_clock = clock;
        self
    }

    /// The quorum.
    ///
    /// # Errors
    /// `Invalid` for a number of members or a time that makes no sense, `Unsupported` for a store that cannot be a
    /// member.
    pub fn build(self) -> Result<Quorum> {
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message).at("quorum"));
        let count = self.members.len();
        if count == 0 || count > MOST {
            return invalid(format!("{count} members: a quorum has 3 to {MOST}"));
        }
        if !self.any_number && (count < 3 || count.is_multiple_of(2)) {
            return invalid(format!(
                "{count} members survive no more failures than {}: use an odd number from 3, or allow any number",
                (count - 1) / 2 * 2 + 1
            ));
        }
        let named = |n: usize| self.members[..n].iter().any(|(name, _)| *name == self.members[n].0);
        if let Some(twice) = (0..count).find(|n| named(*n)) {
            let name = &self.members[twice].0;
            return invalid(format!("{name} is named twice: one server must not have two votes"));
        }
        if self.max_lease.is_zero() || self.member_timeout.is_zero() {
            return invalid("a time of zero: nothing could be held".to_owned());
        }
        for (name, store) in &self.members {
            let able = |error: Error| error.because(format!("as a member of a quorum: {name}"));
            store.info().require(Feature::Member).map_err(able)?;
            if let Some(missing) = CAPABILITIES.iter().find(|need| !store.info().can(**need)) {
                let message =
                    format!("{name} has no {}: choose another store or mode for it", missing.words());
                return Err(Error::new(ErrorKind::Unsupported, message).at("quorum"));
            }
        }
        let info = self.info();
        if info.min_lease > info.max_lease {
            return invalid(format!("a member keeps no lease below {:?}: raise max_lease", info.min_lease));
        }
        let members =
            self.members.into_iter().map(|(name, store)| Arc::new(Member::new(store, name))).collect();
        Ok(Quorum(Arc::new(Inner {
            members,
            about: About::new(info, count),
            max_lease: self.max_lease,
            min_age: if self.quarantine { self.max_lease } else { Duration::ZERO },
            member_timeout: self.member_timeout,
            standings: Standings::new(count, Numbers::new(self.number_clock, self.max_lease)),
        })))
    }

    /// As strong as the weakest member.
    fn info(&self) -> Info {
        let infos = || self.members.iter().map(|(_, store)| store.info());
        let longest = |of: fn(&Info) -> Duration| infos().map(of).max().unwrap_or_default();
        Info {
            name: "quorum",
            capabilities: CAPABILITIES,
            tokens: TokenStrength::ClockBound,
            leases: Leases::PerClaim,
            ordered: false,
            pushes: false,
            min_lease: longest(|info| info.min_lease),
            max_lease: infos().map(|info| info.max_lease).min().unwrap_or_default().min(self.max_lease),
            rounding: longest(|info| info.rounding),
            expiry_slack: longest(|info| info.expiry_slack),
            batch: infos().map(|info| info.batch).min().unwrap_or(1),
            // The members tell when they are opened.
            checks: Vec::new(),
        }
    }
}
