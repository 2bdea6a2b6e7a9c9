//! Renewing many claims: one swap per key, several keys at a time.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;

use super::clerk::{Clerk, Made};
use super::{Records, Session};
use crate::claim::{Answer, Claim};
use crate::error::{ErrorKind, Result};
use crate::key::Key;
use crate::rule::{self, Outcome};

/// How many records one call works on at the same time.
pub(super) const PARALLEL: usize = 16;

impl<R: Records> Clerk<R> {
    /// Renews the claims on one key in one swap.
    pub(super) async fn renew_key(
        &self,
        key: &Key,
        claims: Vec<&Claim>,
        session: Option<&Session>,
    ) -> Result<Vec<Answer>> {
        let rider = session.zip(claims.first().map(|claim| &claim.id));
        let renewed = self.operate(key, rider, |book, now| {
            let mut all = Outcome { answer: Vec::new(), promoted: Vec::new(), ended: Vec::new() };
            for claim in &claims {
                let one = rule::renew(book, claim, now)?;
                all.answer.push(one.answer);
                all.promoted.extend(one.promoted);
                all.ended.extend(one.ended);
            }
            Ok(all)
        });
        match renewed.await {
            Ok(Made::Done { answer, .. }) => Ok(answer),
            // The record is not ours any more, so nothing of ours is in it; the other keys go on.
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            Ok(Made::Over) | Err(_) => Ok(vec![Answer::Gone; claims.len()]),
        }
    }

    /// Renews claims, key by key.
    pub(super) async fn renew_all(
        &self,
        claims: &[&Claim],
        session: Option<&Session>,
    ) -> Result<Vec<Answer>> {
        let mut places: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
        for (place, claim) in claims.iter().enumerate() {
            places.entry(&claim.key).or_default().push(place);
        }
        let keys: Vec<_> = places.into_iter().collect();
        let mut answers = vec![Answer::Gone; claims.len()];
        for some in keys.chunks(PARALLEL) {
            let one = |(key, places): &(&Key, Vec<usize>)| {
                let key = (*key).clone();
                let claims: Vec<&Claim> = places.iter().map(|place| claims[*place]).collect();
                async move { self.renew_key(&key, claims, session).await }
            };
            let renewed = try_join_all(some.iter().map(one)).await?;
            let places = some.iter().flat_map(|(_, places)| places);
            for (place, answer) in places.zip(renewed.into_iter().flatten()) {
                answers[*place] = answer;
            }
        }
        Ok(answers)
    }
}
