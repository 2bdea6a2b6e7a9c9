//! Futures that are dropped half-way, or kept and not polled.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// When a future is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Endless,
    /// At the await that it reaches with this poll: every await of a future is reached by some number.
    Polls(u32),
    For(Duration),
    /// Never; but after so many polls it is left alone for this long, as in a `select!` that is busy elsewhere.
    Forgets(u32, Duration),
}

/// Runs the future until it is done, or drops it: `None`.
pub(crate) async fn unless_cancelled<T>(
    work: impl Future<Output = T> + Send,
    patience: Patience,
) -> Option<T> {
    unless_forgotten(work, patience, || ()).await
}

/// The same; calls `remembered` before it polls a future again that was left alone.
pub(crate) async fn unless_forgotten<T>(
    work: impl Future<Output = T> + Send,
    patience: Patience,
    remembered: impl FnOnce() + Send,
) -> Option<T> {
    match patience {
        Patience::Endless => Some(work.await),
        Patience::For(limit) => tokio::time::timeout(limit, work).await.ok(),
        Patience::Polls(most) => poll_some(pin!(work), most).await,
        Patience::Forgets(polls, length) => {
            let mut work = pin!(work);
            if let Some(done) = poll_some(work.as_mut(), polls).await {
                return Some(done);
            }
            tokio::time::sleep(length).await;
            remembered();
            Some(work.await)
        }
    }
}

/// Polls a future at most so many times: `None` when that was not enough.
async fn poll_some<T>(mut work: Pin<&mut (impl Future<Output = T> + Send)>, most: u32) -> Option<T> {
    let mut polls = 0;
    poll_fn(move |context| {
        polls += 1;
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if polls >= most => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
