//! The way from one client to one member.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::layers::{Call, Fault, Reply, Request, Verb};

use super::MEMBER_TIMEOUT;

/// The latest that a release arrives: long after its caller has given up and asked again.
const LATEST_RELEASE: Duration = Duration::from_secs(5);

/// How the way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nothing goes wrong.
    Good,
    /// Requests take a moment, each its own.
    Slow,
    /// Requests are not sent: the connection is down.
    Refusing,
    /// Requests or their replies are lost, or come too late to be waited for.
    Losing,
}

impl Condition {
    pub(super) fn any(random: &mut Rng) -> Self {
        match random.u32(0..10) {
            0..3 => Self::Good,
            3..6 => Self::Slow,
            6..8 => Self::Refusing,
            _ => Self::Losing,
        }
    }
}

#[derive(Debug)]
pub(super) struct Network(Mutex<(Condition, Rng)>);

impl Network {
    pub(super) fn new(random: Rng) -> Arc<Self> {
        Arc::new(Self(Mutex::new((Condition::Good, random))))
    }

    fn lock(&self) -> MutexGuard<'_, (Condition, Rng)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, condition: Condition) {
        self.lock().0 = condition;
    }

    pub(super) fn fault(&self, call: &Call) -> Fault {
        let mut state = self.lock();
        let (condition, random) = &mut *state;
        let mut micros = |most: Duration| {
            Duration::from_micros(random.u64(0..=u64::try_from(most.as_micros()).unwrap_or(u64::MAX)))
        };
        let moment = Duration::from_millis(2);
        let mut fault = match condition {
            Condition::Good => return Fault::default(),
            Condition::Slow => Fault { before: micros(moment), after: micros(moment), ..Fault::default() },
            Condition::Refusing => Fault { request: Request::Refused, ..Fault::default() },
            Condition::Losing => {
                let before = micros(MEMBER_TIMEOUT * 2);
                match micros(Duration::from_micros(3)).as_micros() {
                    0 => Fault { request: Request::Lost, reply: Reply::Lost, ..Fault::default() },
                    1 => Fault { reply: Reply::Lost, ..Fault::default() },
                    2 => Fault { before, reply: Reply::Lost, ..Fault::default() },
                    _ => Fault { before, ..Fault::default() },
                }
            }
        };
        if call.verb == Verb::Release && micros(Duration::from_micros(2)).is_zero() {
            fault = Fault { before: micros(LATEST_RELEASE), ..Fault::default() };
        }
        fault
    }
}
