//! Counting what members said.

use super::Inner;
use super::members::Replies;
use crate::error::{Error, ErrorKind, Result};

/// Why a member that was started a short time ago does not count.
const YOUNG: &str = "too young to vote, because a claim may have been forgotten in a restart";

/// Each reason once, with the members that gave it.
fn reasons(quorum: &Inner, failed: &[(usize, &Error)]) -> String {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for (n, error) in failed {
        // The same up to the time that is left.
        let reason = match error.retry_after() {
            Some(_) => YOUNG.to_owned(),
            None => error.to_string(),
        };
        let name = quorum.members[*n].name.as_str();
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    let until = failed.iter().filter_map(|(_, error)| error.retry_after()).max();
    let told = reasons.into_iter().map(|(reason, names)| {
        let until = until.filter(|_| reason == YOUNG).map(|until| format!("; counting again in {until:.1?}"));
        format!("{}: {reason}{}", names.join(", "), until.unwrap_or_default())
    });
    told.collect::<Vec<_>>().join("; ")
}

/// What the members said so far.
#[derive(Debug)]
pub(super) struct Votes<T> {
    said: Vec<Option<Result<T>>>,
}

impl<T: Send + 'static> Votes<T> {
    pub(super) fn none(members: usize) -> Self {
        Self { said: (0..members).map(|_| None).collect() }
    }

    /// A member has spoken.
    pub(super) fn note(&mut self, member: usize, reply: Result<T>) {
        self.said[member] = Some(reply);
    }

    /// Listens until `decided` is content or everybody has spoken.
    pub(super) async fn listen(&mut self, replies: &mut Replies<T>, mut decided: impl FnMut(&Self) -> bool) {
        while self.outstanding() > 0 && !decided(self) {
            match replies.next().await {
                Some((n, reply)) => self.note(n, reply),
                None => return,
            }
        }
    }

    /// Whether this member has spoken.
    pub(super) fn has_spoken(&self, member: usize) -> bool {
        self.said[member].is_some()
    }

    /// How many have not spoken yet.
    pub(super) fn outstanding(&self) -> usize {
        self.said.iter().filter(|said| said.is_none()).count()
    }

    /// How many answered so.
    pub(super) fn count(&self, test: impl Fn(&T) -> bool) -> usize {
        self.answers().filter(|(_, answer)| test(answer)).count()
    }

    /// How many failed.
    pub(super) fn failed(&self) -> usize {
        self.said.iter().flatten().filter(|said| said.is_err()).count()
    }

    /// Whether a member answered, even if only that it cannot serve at the moment.
    pub(super) fn has_contact(&self) -> bool {
        let mut said = self.said.iter().flatten();
        said.any(|said| said.as_ref().err().is_none_or(Error::is_transient))
    }

    /// The members that failed in a way that a repeat may mend.
    pub(super) fn retryable(&self) -> impl Iterator<Item = usize> {
        let said = self.said.iter().enumerate();
        said.filter_map(|(n, said)| said.as_ref()?.as_ref().is_err_and(Error::is_retryable).then_some(n))
    }

    /// Whether `majority` answered so, or cannot any more.
    pub(super) fn settles(&self, majority: usize, test: impl Fn(&T) -> bool) -> bool {
        let count = self.count(test);
        count >= majority || count + self.outstanding() < majority
    }

    /// The answers, with the number of the member.
    pub(super) fn answers(&self) -> impl Iterator<Item = (usize, &T)> {
        let said = self.said.iter().enumerate();
        said.filter_map(|(n, said)| Some((n, said.as_ref()?.as_ref().ok()?)))
    }

    /// Why too few took part. If waiting may bring a majority back, the error says so; it can name the reason
    /// that waiting does not mend only if that reason keeps a majority away.
    pub(super) fn error(&self, quorum: &Inner) -> Error {
        let failed = self.said.iter().enumerate();
        let failed: Vec<_> =
            failed.filter_map(|(n, said)| Some((n, said.as_ref()?.as_ref().err()?))).collect();
        let mut for_good = failed.iter().filter(|(_, error)| !error.is_retryable());
        let spared = quorum.members.len() - quorum.majority();
        let is_unknown = || failed.iter().any(|(_, error)| error.kind() == ErrorKind::Indeterminate);
        let kind = match for_good.clone().count() {
            lost if lost > spared => {
                for_good.next().map_or(ErrorKind::Unavailable, |(_, error)| error.kind())
            }
            _ if is_unknown() => ErrorKind::Indeterminate,
            _ => ErrorKind::Unavailable,
        };
        let message = format!(
            "{} of {} members did not take part, {} are needed: {}",
            failed.len(),
            quorum.members.len(),
            quorum.majority(),
            reasons(quorum, &failed)
        );
        let error = Error::new(kind, message);
        // When so many of the members count again that there is a majority.
        let mut waits: Vec<_> = failed.iter().filter_map(|(_, error)| error.retry_after()).collect();
        waits.sort_unstable();
        let missing = failed.len().saturating_sub(spared);
        match missing.checked_sub(1).and_then(|last| waits.get(last)) {
            Some(wait) => error.after(*wait),
            None => error,
        }
    }
}
