//! Futures that are dropped half-way.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// When a future is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Endless,
    /// At the await that it reaches with this poll: every await of a future is reached by some number.
    Polls(u32),
    For(Duration),
}

/// Runs the future until it is done, or drops it: `None`.
pub(crate) async fn unless_cancelled<T>(
    work: impl Future<Output = T> + Send,
    patience: Patience,
) -> Option<T> {
    match patience {
        Patience::Endless => Some(work.await),
        Patience::For(limit) => tokio::time::timeout(limit, work).await.ok(),
        Patience::Polls(most) => {
            let mut work = pin!(work);
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
    }
}
