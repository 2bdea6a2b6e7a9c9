//! What can go wrong with a call or a hint, and how often.

use std::time::Duration;

use crate::key::Key;
use crate::store::{Promotion, Wakes};

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the methods of Store")]
pub enum Verb {
    Open,
    Claim,
    Renew,
    Amend,
    Release,
    Inspect,
    List,
    Evict,
}

/// A call that is about to be made.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number on this layer, from 1.
    pub number: u64,
    /// Which it is.
    pub verb: Verb,
    /// What it is about; `None` for calls about many keys.
    pub key: Option<Key>,
}

/// What happens to one call. The default is nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::layers::{Fault, Faults, Request, Verb};
/// use leasehold_core::{Client, Memory};
/// let faults = Faults::new(Memory::new());
/// let client = Client::new(faults.clone()).await?;
/// faults.once(Verb::Claim, Fault { request: Request::Refused, ..Fault::default() });
/// assert!(client.mutex("k").acquire().await?.is_valid()); // asked again
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// How long the request is under way.
    pub before: Duration,
    /// Whether it arrives.
    pub request: Request,
    /// Delivers the request once more, this long after the first time; nobody hears the second answer.
    pub again_after: Option<Duration>,
    /// How long the reply is under way.
    pub after: Duration,
    /// Whether it arrives.
    pub reply: Reply,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Request {
    /// It arrives, also when its caller does not wait for the answer.
    #[default]
    Delivered,
    /// It is never sent: `Unavailable`.
    Refused,
    /// It is sent and does not arrive; the caller gets `Indeterminate`, or nothing with [`Reply::Never`].
    Lost,
}

/// What becomes of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// It arrives.
    #[default]
    Delivered,
    /// It is known to be lost: `Indeterminate`.
    Lost,
    /// Nobody ever hears: the call does not end.
    Never,
}

/// What happens to one hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeFault {
    /// It arrives.
    #[default]
    Deliver,
    /// It does not.
    Drop,
    /// It arrives this much later.
    Late(Duration),
    /// It arrives now, and again this much later.
    Twice(Duration),
    /// It arrives when [`Faults::deliver_held`](super::Faults::deliver_held) says so.
    Hold,
}

/// What a store told a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// [`Wake::promoted`](crate::Wake::promoted).
    Promoted(Promotion),
    /// [`Wake::look`](crate::Wake::look).
    Look(Key),
    /// [`Wake::look_all`](crate::Wake::look_all).
    LookAll,
}

impl Hint {
    pub(super) fn deliver(&self, wakes: &Wakes) {
        match self {
            Self::Promoted(promotion) => wakes.promoted(promotion),
            Self::Look(key) => wakes.look(key),
            Self::LookAll => wakes.look_all(),
        }
    }
}

/// How often what goes wrong, in thousandths; for [`Faults::seeded`](super::Faults::seeded).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Memory};
/// use leasehold_core::layers::{Faults, Odds};
/// // A test that runs with many seeds can be repeated with the one that failed.
/// let store = Faults::seeded(Memory::new(), 4711, Odds { reply_lost: 200, ..Odds::default() });
/// let client = Client::new(store.clone()).await?;
/// for _ in 0..20 {
///     client.mutex("orders/42").acquire().await?; // asked again, with the same id, until it is answered
/// }
/// assert!(store.injected().replies_lost > 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Odds {
    /// A request or a reply is late, each by up to `longest`.
    pub late: u32,
    /// The longest delay.
    pub longest: Duration,
    /// [`Request::Refused`].
    pub refused: u32,
    /// [`Request::Lost`].
    pub request_lost: u32,
    /// [`Reply::Lost`].
    pub reply_lost: u32,
    /// [`Reply::Never`].
    pub silent: u32,
    /// [`Fault::again_after`].
    pub duplicated: u32,
    /// [`WakeFault::Late`].
    pub wake_late: u32,
    /// [`WakeFault::Twice`].
    pub wake_twice: u32,
    /// [`WakeFault::Drop`].
    pub wake_dropped: u32,
}

impl Odds {
    pub(super) fn fault(&self, random: &mut fastrand::Rng) -> Fault {
        let mut happens = |per_mille| random.u32(0..1000) < per_mille;
        let (late_request, late_reply) = (happens(self.late), happens(self.late));
        let (refused, request_lost) = (happens(self.refused), happens(self.request_lost));
        let (reply_lost, silent, again) =
            (happens(self.reply_lost), happens(self.silent), happens(self.duplicated));
        let mut delay = |wanted: bool| if wanted { self.delay(random) } else { Duration::ZERO };
        Fault {
            before: delay(late_request),
            request: match (refused, request_lost) {
                (true, _) => Request::Refused,
                (_, true) => Request::Lost,
                _ => Request::Delivered,
            },
            after: delay(late_reply),
            reply: match (silent, reply_lost) {
                (true, _) => Reply::Never,
                (_, true) => Reply::Lost,
                _ => Reply::Delivered,
            },
            again_after: again.then(|| delay(true)),
        }
    }

    pub(super) fn wake(&self, random: &mut fastrand::Rng) -> WakeFault {
        let mut happens = |per_mille| random.u32(0..1000) < per_mille;
        let (dropped, late, twice) =
            (happens(self.wake_dropped), happens(self.wake_late), happens(self.wake_twice));
        match (dropped, late, twice) {
            (true, ..) => WakeFault::Drop,
            (_, true, _) => WakeFault::Late(self.delay(random)),
            (.., true) => WakeFault::Twice(self.delay(random)),
            _ => WakeFault::Deliver,
        }
    }

    fn delay(&self, random: &mut fastrand::Rng) -> Duration {
        self.longest.mul_f64(random.f64())
    }
}

/// How often what was injected: a test that relies on faults checks that there were some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// All calls, also those that went well.
    pub calls: u64,
    /// Calls whose request or reply was late.
    pub late: u64,
    /// [`Request::Refused`].
    pub refused: u64,
    /// [`Request::Lost`].
    pub requests_lost: u64,
    /// [`Reply::Lost`] or [`Reply::Never`] of a request that arrived.
    pub replies_lost: u64,
    /// [`Fault::again_after`].
    pub duplicated: u64,
    /// Requests that were carried out although their caller had gone.
    pub orphaned: u64,
    /// All hints, also those that arrived.
    pub wakes: u64,
    /// [`WakeFault::Late`], [`WakeFault::Twice`] and [`WakeFault::Hold`].
    pub wakes_late: u64,
    /// [`WakeFault::Drop`].
    pub wakes_dropped: u64,
}

impl Injected {
    pub(super) fn count(&mut self, fault: &Fault) {
        let arrives = fault.request == Request::Delivered;
        self.late += u64::from(!fault.before.is_zero() || !fault.after.is_zero());
        self.refused += u64::from(fault.request == Request::Refused);
        self.requests_lost += u64::from(fault.request == Request::Lost);
        self.replies_lost += u64::from(arrives && fault.reply != Reply::Delivered);
        self.duplicated += u64::from(arrives && fault.again_after.is_some());
    }

    pub(super) fn count_wake(&mut self, fault: WakeFault) {
        self.wakes += 1;
        match fault {
            WakeFault::Deliver => {}
            WakeFault::Drop => self.wakes_dropped += 1,
            WakeFault::Late(_) | WakeFault::Twice(_) | WakeFault::Hold => self.wakes_late += 1,
        }
    }
}
