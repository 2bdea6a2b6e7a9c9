//! Renewing claims, even if other sessions keep the rows of some of them.
//!
//! One statement renews every claim whose row is free. The client then waits for the other rows one by one: a row that many
//! sessions use becomes free only for a session in its queue. All these waits together end within a fraction of the shortest
//! lease in the batch, so a kept row never costs another claim its lease.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use leasehold_core::{Answer, Claim, Result};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;

use crate::ask;
use crate::link::Link;
use crate::reply;

/// How many kept rows the client waits for at a time. Each wait takes a connection from other requests.
const AT_A_TIME: u32 = 4;

/// The longest wait for all kept rows of a batch.
const LONGEST: Duration = Duration::from_millis(500);

/// The shortest wait for one row if there are many: other sessions usually keep a row for less.
const SHORTEST: Duration = Duration::from_millis(5);

/// Renews claims. A claim whose row stays kept is answered as it stands, without a lease.
pub(crate) async fn renew(link: &Link, claims: &[Claim]) -> Result<Vec<Answer>> {
    let rows = link.call(ask::renew(claims, None)).await?;
    if rows.len() != claims.len() {
        return Err(reply::strange("another number of renewals"));
    }
    let read = |(row, claim): (&Row, &Claim)| reply::answer(row, claim);
    let mut answers = rows.iter().zip(claims).map(read).collect::<Result<Vec<_>>>()?;
    let kept: Vec<usize> = (0..rows.len()).filter(|at| reply::is_kept(&rows[*at])).collect();
    if !kept.is_empty() {
        wait_for_rows(link, claims, kept, &mut answers).await;
    }
    Ok(answers)
}

/// Waits for the rows of these claims, and puts in the answers of those that it gets.
async fn wait_for_rows(link: &Link, claims: &[Claim], mut kept: Vec<usize>, answers: &mut [Answer]) {
    let total = total_wait(claims);
    let (until, each) = (Instant::now() + total, wait_for_one(total, kept.len()));
    // There may be no time for all of them, and the next round must not leave out the same ones.
    fastrand::shuffle(&mut kept);
    let mut retries = stream::iter(kept)
        .map(async |at| (at, renew_one(link, &claims[at], each, until).await))
        .buffer_unordered(AT_A_TIME as usize);
    while let Ok(Some((at, renewed))) = timeout_at(until, retries.next()).await {
        match renewed {
            Ok(answer) => answers[at] = answer,
            Err(error) => tracing::debug!(%error, key = %claims[at].key, "a kept row was not renewed"),
        }
    }
}

async fn renew_one(link: &Link, claim: &Claim, wait: Duration, until: Instant) -> Result<Answer> {
    let call = ask::renew(std::slice::from_ref(claim), Some(wait));
    reply::answer(reply::one(&link.call_apart(&call, until).await?)?, claim)
}

/// How long a batch waits for kept rows. The answers for all its claims wait with it, and the keeper gives up on the whole
/// batch after a third of the shortest lease.
fn total_wait(claims: &[Claim]) -> Duration {
    let shortest = claims.iter().filter_map(|claim| claim.lease).min().unwrap_or(Duration::MAX);
    // The server takes zero for "no limit".
    (shortest / 8).clamp(Duration::from_millis(1), LONGEST)
}

/// How long to wait for each of so many kept rows.
fn wait_for_one(total: Duration, kept: usize) -> Duration {
    let rounds = u32::try_from(kept).unwrap_or(u32::MAX).div_ceil(AT_A_TIME).max(1);
    (total / rounds).max(SHORTEST).min(total)
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Key, Units};

    use super::*;

    fn claim(lease: Option<Duration>) -> Claim {
        let claim = Claim::new(Key::new("k").expect("a name"), 1, Units::Exactly(1)).expect("it fits");
        Claim { lease, ..claim }
    }

    #[test]
    fn batch_waits_for_less_than_a_third_of_its_shortest_lease() {
        let millis = Duration::from_millis;
        for (leases, expected) in [
            (&[Some(millis(30_000)), Some(millis(1000))][..], 125),
            (&[Some(millis(30_000)), None], 500),
            (&[None], 500),
            (&[Some(millis(1))], 1),
        ] {
            let claims: Vec<Claim> = leases.iter().map(|lease| claim(*lease)).collect();
            assert_eq!(total_wait(&claims), millis(expected), "{leases:?}");
        }
    }

    #[test]
    fn many_kept_rows_share_the_wait_of_their_batch() {
        let millis = Duration::from_millis;
        for (kept, expected) in [(1, 400), (4, 400), (5, 200), (50, 30), (400, 5)] {
            assert_eq!(wait_for_one(millis(400), kept).as_millis(), expected, "{kept} rows");
        }
        assert_eq!(wait_for_one(millis(2), 50), millis(2), "never longer than all of them");
    }
}
