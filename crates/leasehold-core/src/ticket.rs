//! Handing a lock to another process: the old guard ends, the new one begins, nobody else gets in between.

mod release;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use release::ReleaseTicket;

use crate::capability::Feature;
use crate::claim::{Change, Claim, ClaimId, Units};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::key::Key;
use crate::mutant::Mutant;
use crate::options::Options;

/// A lock on its way to somebody else: whoever has the ticket can have the lock, once.
///
/// It is a secret. [`Debug`] hides it; [`Display`](fmt::Display) writes it out, for a message or an environment
/// variable, and [`FromStr`] reads it back. The lease goes on running meanwhile: adopt it before it ends.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Ticket};
/// let store = Memory::new();
/// let (giver, taker) = (Client::new(store.clone()).await?, Client::new(store).await?);
/// let guard = giver.mutex("orders/42").acquire().await?;
/// let before = guard.token();
/// let sent = guard.hand_over().await?.to_string();
///
/// let ticket: Ticket = sent.parse()?;
/// let guard = taker.adopt(&ticket).await?.expect("nobody was faster");
/// assert!(guard.token() > before);
/// assert!(taker.adopt(&ticket).await?.is_none()); // a ticket is good for once
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    key: Key,
    id: ClaimId,
    limit: u64,
    units: u64,
    lease: Duration,
}

const PREFIX: &str = "leasehold-ticket-1";

impl Ticket {
    /// The lock that it is for.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lease = self.lease.as_millis();
        write!(f, "{PREFIX}.{}.{}.{lease}.", self.limit, self.units)?;
        for byte in self.id.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(".")?;
        // Hexadecimal: a name may have any character, a ticket travels through shells and variables.
        self.key.as_str().bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(refused)
    }
}

/// Without the text: a mistyped ticket is still nearly a secret.
fn refused() -> Error {
    Error::new(ErrorKind::Invalid, "this is not a ticket: pass on exactly what hand_over gave")
}

fn parse(text: &str) -> Option<Ticket> {
    let mut parts = text.trim().split('.');
    if parts.next()? != PREFIX {
        return None;
    }
    let (limit, units) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let lease = Duration::from_millis(parts.next()?.parse().ok()?);
    let id = ClaimId::from_bytes(from_hex(parts.next()?)?.try_into().ok()?);
    let key = Key::new(String::from_utf8(from_hex(parts.next()?)?).ok()?).ok()?;
    parts.next().is_none().then_some(Ticket { key, id, limit, units, lease })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl Guard {
    /// Stops looking after this hold and makes a ticket of it, with a full lease to be adopted in.
    ///
    /// # Errors
    /// `Lost` when it is not held any more; `Invalid` when an owner has other guards of the same hold.
    pub async fn hand_over(self) -> Result<Ticket> {
        let hand = self.hand();
        hand.life.0.store.info().require(Feature::HandOver).map_err(|error| error.on(self.key()))?;
        // Before anything is sent, and nobody joins from here on: all of the hold goes.
        hand.close()?;
        let lease = hand.claim.lease.unwrap_or(Duration::MAX);
        hand.life.0.renew_now(&hand.claim, lease).await.map_err(|error| error.on(self.key()))?;
        let ticket = Ticket {
            key: self.key().clone(),
            id: hand.claim.id,
            limit: hand.claim.limit,
            units: self.units(),
            lease,
        };
        self.abandon();
        Ok(ticket)
    }
}

impl Client {
    /// Takes over the lock that a ticket is for, with a new and larger token. `None` when the ticket was used
    /// before, or its lease has ended.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn adopt(&self, ticket: &Ticket) -> Result<Option<Guard>> {
        self.adopt_with(ticket, Options::new().lease(ticket.lease)).await
    }

    /// The same, with these options from now on.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory, Options};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// let ticket = guard.hand_over().await?;
    /// let options = Options::new().lease(Duration::from_secs(5)).label("the successor");
    /// let guard = client.adopt_with(&ticket, options).await?.expect("nobody was faster");
    /// assert_eq!(client.inspect("orders/42").await?.unwrap().holders[0].label, "the successor");
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`adopt`](Self::adopt).
    pub async fn adopt_with(&self, ticket: &Ticket, options: Options) -> Result<Option<Guard>> {
        self.info().require(Feature::HandOver).map_err(|error| error.on(&ticket.key))?;
        self.keeper().ready(None).await.map_err(|error| error.on(&ticket.key))?;
        let units = Units::Exactly(ticket.units);
        let mut old = Claim::new(ticket.key.clone(), ticket.limit, units)?;
        old.id = ticket.id;
        let mut heir = self.claim_for(&ticket.key, ticket.limit, units, &options)?;
        if Mutant::AdoptKeepsTheSecret.lives() {
            heir.id = ticket.id;
        }
        let keeper = self.keeper();
        let mut pending = keeper.enter(heir.clone(), options.renewal, options.max_hold)?;
        let sent = keeper.clock.now();
        let change = Change::Owner { to: Box::new(heir), refuse_for: keeper.call_timeout * 2 };
        let answer = keeper.amend(&old, &change).await?;
        if !pending.adopted(sent, &answer).await? {
            return Ok(None);
        }
        let (claim, hold) = pending.into_parts();
        Ok(Some(Guard::new(self.life().clone(), claim, hold)))
    }
}
