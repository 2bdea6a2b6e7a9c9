//! Law 6 for futures: an acquire that is dropped at any await leaves nothing.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::case::viewed_cases;
use crate::verdict::Verdict;
use crate::views::Stage;

viewed_cases!(
    an_acquire_dropped_after_any_poll_leaves_nothing,
    an_acquire_dropped_in_the_queue_leaves_nothing,
    an_acquire_dropped_as_it_is_granted_leaves_nothing,
    an_acquire_within_dropped_in_the_queue_leaves_nothing,
    a_dropped_release_goes_on,
);

/// More than any acquire needs on any store.
const POLLS: usize = 12;

/// Polls a future this many times, letting others run in between. `true` when it was done before.
async fn polled<F: Future + Send>(mut future: Pin<&mut F>, times: usize) -> bool {
    for _ in 0..times {
        let ready = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
        if ready {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

async fn an_acquire_dropped_after_any_poll_leaves_nothing(stage: Stage) -> Verdict {
    for polls in 0..POLLS {
        let lock = stage.new_lock().await?;
        // Whatever it came to, the guard included, is dropped.
        polled(Box::pin(lock.acquire()).as_mut(), polls).await;
        stage.until_crowd((0, 0)).await?;
    }
    Ok(())
}

async fn an_acquire_dropped_in_the_queue_leaves_nothing(stage: Stage) -> Verdict {
    let held = stage.new_lock().await?.acquire().await?;
    for polls in 1..POLLS {
        let lock = stage.new_lock().await?;
        assert!(!polled(Box::pin(lock.acquire()).as_mut(), polls).await, "it is held");
        stage.until_crowd((1, 0)).await?;
    }
    assert!(held.is_valid());
    held.release().await?;
    stage.until_crowd((0, 0)).await
}

async fn an_acquire_dropped_as_it_is_granted_leaves_nothing(stage: Stage) -> Verdict {
    for polls in 0..4 {
        let held = stage.new_lock().await?.acquire().await?;
        let lock = stage.new_lock().await?;
        let waiting = tokio::spawn(async move {
            let mut acquire = Box::pin(lock.acquire());
            // On a slow machine it may be granted while it is polled.
            if polled(acquire.as_mut(), POLLS).await { Ok(()) } else { acquire.await.map(drop) }
        });
        stage.until_crowd((1, 1)).await?;
        held.release().await?;
        // The promotion and the end of its future race, a little differently each time.
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        stage.until_crowd((0, 0)).await?;
    }
    Ok(())
}

async fn an_acquire_within_dropped_in_the_queue_leaves_nothing(stage: Stage) -> Verdict {
    let _held = stage.new_lock().await?.acquire().await?;
    let lock = stage.new_lock().await?;
    let waiting = tokio::spawn(async move { lock.acquire_within(Duration::from_secs(60)).await.map(|_| ()) });
    stage.until_crowd((1, 1)).await?;
    waiting.abort();
    stage.until_crowd((1, 0)).await
}

async fn a_dropped_release_goes_on(stage: Stage) -> Verdict {
    for polls in 0..4 {
        let lock = stage.new_lock().await?;
        let held = lock.acquire().await?;
        polled(Box::pin(held.release()).as_mut(), polls).await;
        stage.until_crowd((0, 0)).await?;
    }
    Ok(())
}
