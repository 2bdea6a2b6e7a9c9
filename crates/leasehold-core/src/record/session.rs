//! Sessions: what carries claims where a client's liveness is known to the store as a whole.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Inbox;
use crate::store::{Fut, Promotion};

/// The name of a session. Once it is over the name is never used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session(pub Arc<str>);

/// The sessions of a store of records.
///
/// # Laws
/// 1. A session that was renewed lives at least that long; one that is over stays over.
/// 2. [`dead`](Sessions::dead) names a session only if it is over, and names it within [`Info::expiry_slack`] of its end.
/// 3. A swap for a session that is over answers [`Over`](super::Swapped::Over).
///
/// [`Info::expiry_slack`]: crate::Info::expiry_slack
pub trait Sessions: Debug + Send + Sync {
    /// The session of a client for this lease length, opened if there is none that lives.
    fn join(&self, inbox: Inbox, lease: Duration) -> Fut<'_, Joined>;

    /// Renews a session through the store's authority: for how long it lives at least, counted from the call.
    /// `None` when it is over.
    fn renew<'a>(&'a self, session: &'a Session) -> Fut<'a, Option<Duration>>;

    /// Sees to it that no swap for this session that was given up ([`Indeterminate`](crate::ErrorKind::Indeterminate))
    /// happens after this.
    fn fence<'a>(&'a self, session: &'a Session) -> Fut<'a, ()>;

    /// Which of these sessions are over. They were seen in a record that was loaded before this call.
    fn dead<'a>(&'a self, sessions: &'a [Session]) -> Fut<'a, Vec<Session>>;

    /// A session carries nothing any more: it may be closed, if nobody joins it again.
    fn idle(&self, session: &Session);
}

/// A session that a claim can live on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Which.
    pub session: Session,
    /// For how long it lives at least, counted from the call.
    pub left: Duration,
}

/// What a client is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Whose session.
    pub session: Session,
    /// Claims of it that hold now.
    pub promoted: Vec<Promotion>,
    /// It should look at the key: a claim of its was ended, or asked for.
    pub look: bool,
}
