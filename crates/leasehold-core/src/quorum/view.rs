//! What anybody may see of a quorum, and force.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::members::{Member, Replies};
use super::votes::Votes;
use crate::error::Result;
use crate::key::Key;
use crate::store::{Finished, Holder, Page, Snapshot};

impl Inner {
    pub(super) async fn inspect(&self, key: &Key) -> Result<Option<Snapshot>> {
        let mut replies = self.ask(|_, store| {
            let key = key.clone();
            Box::pin(async move { store.inspect(&key).await })
        });
        // Everybody is heard: which majority holds is not known beforehand.
        let mut votes = Votes::none(self.members.len());
        votes.listen(&mut replies, |_| false).await;
        self.check_turnout(&votes)?;
        let shown: Vec<&Snapshot> = votes.answers().filter_map(|(_, shown)| shown.as_ref()).collect();
        Ok(self.agreed(&shown, votes.failed()))
    }

    /// All members' lists, merged: one page, however long.
    pub(super) async fn list(&self, prefix: &str, _cursor: Option<&str>) -> Result<Page> {
        let prefix: Arc<str> = prefix.into();
        let mut replies = Replies::new();
        for (n, member) in self.members.iter().enumerate() {
            replies.run(n, everything(member.clone(), prefix.clone(), self.member_timeout));
        }
        let mut votes = Votes::none(self.members.len());
        votes.listen(&mut replies, |_| false).await;
        self.check_turnout(&votes)?;
        let mut by_key: BTreeMap<&Key, Vec<&Snapshot>> = BTreeMap::new();
        for shown in votes.answers().flat_map(|(_, all)| all) {
            by_key.entry(&shown.key).or_default().push(shown);
        }
        let resources = by_key.values().filter_map(|shown| self.agreed(shown, votes.failed())).collect();
        Ok(Page { resources, next: None })
    }

    pub(super) async fn evict(&self, key: &Key, token: u64) -> Result<bool> {
        let mut replies = self.ask(|_, store| {
            let key = key.clone();
            Box::pin(async move { store.evict(&key, token).await })
        });
        let mut votes = Votes::none(self.members.len());
        votes.listen(&mut replies, |votes| votes.count(|_| true) >= self.majority()).await;
        self.check_turnout(&votes)?;
        Ok(votes.count(|evicted| *evicted) > 0)
    }

    fn check_turnout<T: Send + 'static>(&self, votes: &Votes<T>) -> Result<()> {
        let enough = votes.count(|_| true) >= self.majority();
        if enough { Ok(()) } else { Err(votes.error(self)) }
    }

    /// The holders that a majority knows, or may know when `silent` members are counted in.
    fn agreed(&self, shown: &[&Snapshot], silent: usize) -> Option<Snapshot> {
        let first = shown.first()?;
        let mut by_token: BTreeMap<u64, Vec<&Holder>> = BTreeMap::new();
        for holder in shown.iter().flat_map(|shown| &shown.holders) {
            by_token.entry(holder.token).or_default().push(holder);
        }
        let mut finished: BTreeMap<u64, Vec<&Finished>> = BTreeMap::new();
        for job in shown.iter().flat_map(|shown| &shown.finished) {
            finished.entry(job.token).or_default().push(job);
        }
        let is_known = |members: usize| members + silent >= self.majority();
        let mut agreed = Snapshot::free(first.key.clone(), first.limit);
        // The member that keeps it closed for longest may be one of the majority that decides.
        let last = |seen: Vec<&Finished>| seen.into_iter().max_by_key(|job| job.due_in).cloned();
        agreed.finished =
            finished.into_values().filter(|seen| is_known(seen.len())).filter_map(last).collect();
        // A job that has finished on one member does not run any more.
        by_token.retain(|token, _| agreed.finished.iter().all(|job| job.token != *token));
        let known = by_token.into_values().filter(|seen| is_known(seen.len()));
        agreed.holders = known.filter_map(|seen| most(&seen)).collect();
        (!agreed.holders.is_empty() || !agreed.finished.is_empty()).then_some(agreed)
    }
}

/// A holder as most of those show it who know it: a change may not have reached all of them yet.
fn most(seen: &[&Holder]) -> Option<Holder> {
    let alike = |one: &Holder, other: &Holder| one.value == other.value && one.units == other.units;
    let count = |one: &Holder| seen.iter().filter(|other| alike(one, other)).count();
    seen.iter().max_by_key(|one| count(one)).map(|one| Holder::clone(one))
}

/// All pages of one member, each within the limit.
async fn everything(member: Arc<Member>, prefix: Arc<str>, limit: Duration) -> Result<Vec<Snapshot>> {
    let (mut all, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let (store, prefix) = (member.store.clone(), prefix.clone());
        let call = Box::pin(async move { store.list(&prefix, cursor.as_deref()).await });
        let page = member.clone().call(limit, call).await?;
        all.extend(page.resources);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_shown_as_most_members_show_it() {
        let holder = |units, value: &[u8]| Holder {
            seat: 1,
            token: 2,
            units,
            label: String::new(),
            held_for: Duration::ZERO,
            lease_left: None,
            value: value.into(),
            count: None,
        };
        let (old, new) = (holder(1, b"old"), holder(1, b"new"));
        for seen in [[&old, &new, &new], [&new, &old, &new], [&new, &new, &old]] {
            assert_eq!(most(&seen).map(|shown| shown.value), Some(new.value.clone()));
        }
        assert!(most(&[]).is_none());
    }
}
