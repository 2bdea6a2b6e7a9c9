//! What most of several servers say.

use std::collections::HashMap;
use std::hash::Hash;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::fault::Unreachable;

/// The answer that more than half of `all` give, as soon as they do; otherwise the most frequent one when
/// everybody has answered or failed. Neither a dead server nor one that was cut off decides.
pub(super) async fn most<T: Clone + Eq + Hash>(
    answers: impl Iterator<Item = impl Future<Output = Result<T, Unreachable>>>,
    all: usize,
) -> Result<T, Unreachable> {
    let mut answers: FuturesUnordered<_> = answers.collect();
    let mut votes: HashMap<T, usize> = HashMap::new();
    let mut problem: Option<Unreachable> = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(answer) => {
                let count = votes.entry(answer.clone()).or_default();
                *count += 1;
                if *count > all / 2 {
                    return Ok(answer);
                }
            }
            Err(why) => {
                problem = Some(match problem.take() {
                    Some(old) => old.or(why),
                    None => why,
                });
            }
        }
    }
    let most = votes.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(answer, _)| answer)
        .ok_or_else(|| problem.unwrap_or_else(|| Unreachable::new("nobody to ask: check the URL")))
}
