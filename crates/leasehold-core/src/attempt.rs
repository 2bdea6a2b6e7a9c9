//! Requests that change what belongs to no process: setting a latch, resizing a semaphore.
//!
//! Nobody renews such a change, so no lease would end a mistake. Each request has an id of its own, which is used for
//! one attempt: its repeats find what the first copy did, and a request whose outcome the caller never learns is withdrawn.

use std::sync::Arc;

use crate::claim::{Answer, Claim};
use crate::clock::Moment;
use crate::error::{ErrorKind, Result};
use crate::hold::Hold;
use crate::keeper::{Keeper, Leaving, Tries};
use crate::key::Key;
use crate::store::Fut;

/// What came of a call that was repeated until it was answered.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) answer: Result<Answer>,
    /// An earlier copy was sent and not answered: it may have happened, or may happen yet.
    pub(crate) in_doubt: bool,
}

/// Makes a call that may be repeated, until it is answered or `until` has passed.
pub(crate) async fn ask<'a>(
    keeper: &Keeper,
    key: &Key,
    until: Moment,
    call: impl Fn() -> Fut<'a, Answer> + Send,
) -> Heard {
    let mut tries = Tries::new(until);
    let mut in_doubt = false;
    loop {
        let error = match keeper.call(call()).await {
            Ok(answer) => return Heard { answer: Ok(answer), in_doubt },
            Err(error) => error.on(key),
        };
        in_doubt |= matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Protocol);
        if let Err(error) = tries.pause_after(error, &*keeper.clock).await {
            return Heard { answer: Err(error), in_doubt };
        }
    }
}

/// One attempt with an id of its own. Dropped before it is settled, it is withdrawn: a copy that is still on its way will
/// be refused.
#[derive(Debug)]
pub(crate) struct Attempt {
    keeper: Arc<Keeper>,
    pub(crate) claim: Claim,
    is_settled: bool,
}

impl Attempt {
    /// Refused when the client is closing: nothing would withdraw the request any more.
    pub(crate) fn new(keeper: &Arc<Keeper>, claim: Claim) -> Result<Self> {
        keeper.check_open().map_err(|error| error.on(&claim.key))?;
        Ok(Self { keeper: keeper.clone(), claim, is_settled: false })
    }

    /// No copy of the request can do anything from here on, or what it did shall stay.
    pub(crate) fn settled(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_settled {
            let hold = Hold::new(self.keeper.clock.clone(), None);
            drop(Leaving::new(self.keeper.clone(), &self.claim, &hold));
        }
    }
}
