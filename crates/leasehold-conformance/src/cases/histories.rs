//! Long random runs, and the checker over the history that they leave: a limit that goes up and down, and faults.

mod contender;
mod faults;
mod run;

use std::time::Duration;

use leasehold_core::Feature;
use tokio::time::Instant;

use self::faults::kills_cuts_and_evictions_leave_a_clean_history;
use self::run::{DECLARED, OPERATOR, Run, random_up_to};
use crate::case::cases;
use crate::history::Step;
use crate::scale::Scale;
use crate::scene::{SLACK, Scene};
use crate::verdict::Verdict;

cases!("histories":
    no_grant_exceeds_a_limit_that_goes_up_and_down,
    kills_cuts_and_evictions_leave_a_clean_history,
);

/// Fewer resizes than this say nothing.
const MIN_RESIZES: usize = 6;

/// How long each of the two cases runs: 5 s together in CI, 30 s in the full tier.
fn span() -> Duration {
    Scale::chosen().pick(Duration::from_millis(2500), Duration::from_secs(15), Duration::from_secs(300))
}

async fn no_grant_exceeds_a_limit_that_goes_up_and_down(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Resize)?;
    let run = Run::with_resizes(scene.key());
    let mut tasks = run.start(&scene).await?;
    let (observing, observer) = (run.clone(), scene.fixture.connect().await?);
    tasks.spawn(async move { observing.observe(observer).await });
    let permits = scene.fixture.connect().await?.semaphore(run.key.as_str(), DECLARED);
    let (end, mut resizes, mut marks) = (Instant::now() + span(), 0, 0);
    // A busy machine makes each resize slow, so their number decides, too. The last one restores the limit.
    while Instant::now() < end || resizes < MIN_RESIZES || resizes % 2 == 1 {
        let limit = if resizes % 2 == 1 { DECLARED } else { fastrand::choice([1, 4, 6]).unwrap_or(6) };
        run.note(OPERATOR, Step::Resizes { limit });
        resizes += 1;
        while let Err(error) = permits.resize(limit).await {
            // A busy machine answers late. Whatever became of that resize, the next one makes the limit the same.
            if !error.is_retryable() || Instant::now() > end + SLACK {
                return Err(error.into());
            }
            marks += 1;
        }
        run.note(OPERATOR, Step::Resized);
        tokio::time::sleep(random_up_to(Duration::from_millis(40))).await;
    }
    let granted = run.finish(&scene, tasks, true).await?;
    assert!(granted > 20, "{granted} grants say nothing");
    // Each resize leaves a mark that refuses late copies of it.
    scene.until_only_marks_are_left(&run.key, resizes + marks).await
}
