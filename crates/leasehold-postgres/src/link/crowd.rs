//! Claims and releases of many tasks as one statement.

use std::time::Duration;

use leasehold_core::{Claim, Result};
use leasehold_sql::{Caller, Crowd};
use tokio::time::Instant;
use tokio_postgres::Row;

use super::Link;
use crate::ask::{self, Call};
use crate::names::encode;

/// What can be asked together.
#[derive(Debug)]
pub(crate) enum Ask {
    Claim(Claim),
    Release(Claim, Option<Duration>),
}

impl Ask {
    fn alone(&self) -> Call {
        match self {
            Self::Claim(claim) => ask::claim(claim),
            Self::Release(claim, refuse_for) => ask::release(claim, *refuse_for),
        }
    }
}

/// What is given back may be what the others want: it goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Release,
    Claim,
}

impl Link {
    /// Asks, together with others who ask at the same time.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Row> {
        Crowd::ask(self, ask, Instant::now() + self.target().timeout).await
    }
}

impl Caller for Link {
    const STORE: &'static str = "postgres";
    const FEW: usize = 4;
    type Ask = Ask;
    type Said = Row;
    type Kind = Kind;

    fn crowd(&self) -> &Crowd<Self> {
        &self.inner.crowd
    }

    fn kind(ask: &Ask) -> Kind {
        match ask {
            Ask::Claim(_) => Kind::Claim,
            Ask::Release(..) => Kind::Release,
        }
    }

    fn name(ask: &Ask) -> String {
        let (Ask::Claim(claim) | Ask::Release(claim, _)) = ask;
        encode(claim.key.as_str())
    }

    async fn alone(&self, ask: Ask, until: Instant) -> Result<Row> {
        let rows = self.call_until(&ask.alone(), until).await?;
        rows.into_iter().next().ok_or_else(|| crate::reply::strange("no row"))
    }

    async fn together(&self, asks: &[Ask], until: Instant) -> Result<Vec<Row>> {
        let (mut claims, mut releases) = (Vec::new(), Vec::new());
        for ask in asks {
            match ask {
                Ask::Claim(claim) => claims.push(claim.clone()),
                Ask::Release(claim, refuse_for) => releases.push((claim.clone(), *refuse_for)),
            }
        }
        let call = if releases.is_empty() { ask::claims(&claims) } else { ask::releases(&releases) };
        self.call_until(&call, until).await
    }
}
