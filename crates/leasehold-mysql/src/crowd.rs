//! The short way, alone or together with others who take it at the same time.

use std::sync::Arc;

use leasehold_core::{Answer, Claim, ClaimId, Grant, Key, Result};
use leasehold_sql::{Caller, Crowd, First};
use tokio::time::Instant;

use crate::dialect::Numbers;
use crate::link::{Link, apart};
use crate::sketch::Sketch;
use crate::{many, swift};

/// Who brings more bytes than these goes alone: the server takes only so many at once.
const HEAVY: usize = 4096;

/// What is asked, in its turn.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) what: What,
    _turn: First,
}

#[derive(Debug)]
pub(crate) enum What {
    /// To claim a lock that nobody uses.
    Claim(Box<Sketch>),
    /// To release a lock that nobody else uses.
    Release(Key, ClaimId),
}

impl What {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Claim(sketch) => &sketch.key,
            Self::Release(key, _) => key,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Claim(sketch) => sketch.weight(),
            Self::Release(..) => 0,
        }
    }
}

/// What is said to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Granted(Grant),
    Released,
    /// Nothing happened: others use the lock, or may. It is for the rule.
    NotSo,
}

/// Those who take the short way.
#[derive(Clone, Debug)]
pub(crate) struct Short {
    link: Arc<Link>,
    crowd: Arc<Crowd<Self>>,
}

impl Short {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, crowd: Arc::default() }
    }

    /// Claims a lock if nobody uses it; `None` when somebody may.
    pub(crate) async fn claim(&self, claim: &Claim, until: Instant) -> Result<Option<Answer>> {
        let Some(sketch) = Sketch::of(claim) else { return Ok(None) };
        Ok(match self.ask(What::Claim(Box::new(sketch)), until).await.map_err(|e| e.on(&claim.key))? {
            Said::Granted(grant) => Some(Answer::Granted(grant)),
            Said::Released | Said::NotSo => None,
        })
    }

    /// Releases a lock if this claim holds it and nobody else uses it. Says whether it was so.
    pub(crate) async fn release(&self, key: &Key, id: ClaimId, until: Instant) -> Result<bool> {
        let said = self.ask(What::Release(key.clone(), id), until).await;
        Ok(said.map_err(|e| e.on(key))? == Said::Released)
    }

    async fn ask(&self, what: What, until: Instant) -> Result<Said> {
        let turn = self.link.turn(what.key(), until).await?;
        let goes_alone = what.weight() > HEAVY || self.link.dialect().numbers != Numbers::Sequence;
        let ask = Ask { what, _turn: turn };
        if goes_alone {
            return self.alone(ask, until).await;
        }
        Crowd::ask(self, ask, until).await
    }
}

impl Caller for Short {
    const STORE: &'static str = "mysql";
    const FEW: usize = 2;
    type Ask = Ask;
    type Said = Said;
    type Kind = ();

    fn crowd(&self) -> &Crowd<Self> {
        &self.crowd
    }

    fn kind(_: &Ask) {}

    fn name(ask: &Ask) -> String {
        ask.what.key().as_str().to_owned()
    }

    async fn alone(&self, ask: Ask, until: Instant) -> Result<Said> {
        let link = self.link.clone();
        apart(async move {
            // Its turn lasts until it is done, whether its caller waits for it or not.
            let ask = ask;
            match &ask.what {
                What::Claim(sketch) => swift::claim(&link, sketch, until).await,
                What::Release(key, id) => swift::release(&link, key, id, until).await,
            }
        })
        .await
    }

    async fn together(&self, asks: &[Ask], until: Instant) -> Result<Vec<Said>> {
        let asked: Vec<&What> = asks.iter().map(|ask| &ask.what).collect();
        many::perform(&self.link, &asked, until).await
    }
}
