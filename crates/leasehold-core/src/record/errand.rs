//! A call's work, which is brought to an end whatever becomes of its caller.
//!
//! Work holds its key's turn and may be what others wait for, but its caller's future can be dropped half-way, or be one
//! that nobody polls any more. A task for every call would do, at the price of a hop there and one back. So the caller works
//! itself while that is quick. What takes longer goes on on a task, and so does what is dropped after it was begun.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};

use crate::error::{Error, ErrorKind, Result};

/// How long others may be held up by a future that nobody polls.
const QUICK: Duration = Duration::from_millis(5);

type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Does the work. Nothing is begun before the first poll.
pub(super) async fn run<T: Send + 'static>(work: Work<T>) -> Result<T> {
    let errand = Errand(Arc::new(Shared { runtime: Handle::current(), place: Mutex::new(Place::new(work)) }));
    let mut quick = pin!(sleep(QUICK));
    poll_fn(|cx| errand.poll(cx, quick.as_mut())).await
}

/// The caller's side.
struct Errand<T: Send + 'static>(Arc<Shared<T>>);

struct Shared<T> {
    runtime: Handle,
    place: Mutex<Place<T>>,
}

/// Where the work is.
struct Place<T> {
    /// Here, unless it is being polled at this moment.
    here: Option<Work<T>>,
    /// On a task.
    there: Option<JoinHandle<Result<T>>>,
    /// Who is woken when it goes from here to there.
    caller: Option<Waker>,
    is_overdue: bool,
}

impl<T: Send + 'static> Place<T> {
    fn new(work: Work<T>) -> Self {
        Self { here: Some(work), there: None, caller: None, is_overdue: false }
    }

    fn go(&mut self, work: Work<T>, runtime: &Handle) {
        self.there = Some(runtime.spawn(work));
        if let Some(caller) = self.caller.take() {
            caller.wake();
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Place<T>> {
        // Nothing below the lock panics half-way through a change.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Errand<T> {
    fn poll(&self, cx: &mut Context<'_>, mut quick: Pin<&mut Sleep>) -> Poll<Result<T>> {
        let mut place = self.0.lock();
        if let Some(task) = &mut place.there {
            return Pin::new(task).poll(cx).map(joined);
        }
        let is_first = place.caller.is_none();
        // Not below the lock: it can take its time, and be what others wait for. If it panics it is gone.
        let mut work = place.here.take().expect("a future is polled by one at a time, and not after its end");
        drop(place);
        if let Poll::Ready(result) = work.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        if is_first {
            // Whoever drives the clock sends it on its way: this future may never be polled again.
            let overdue = Waker::from(self.0.clone());
            if quick.as_mut().poll(&mut Context::from_waker(&overdue)).is_ready() {
                overdue.wake();
            }
        }
        let mut place = self.0.lock();
        match &mut place.caller {
            Some(caller) => caller.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        match place.is_overdue {
            true => place.go(work, &self.0.runtime),
            false => place.here = Some(work),
        }
        Poll::Pending
    }
}

impl<T: Send + 'static> Wake for Shared<T> {
    fn wake(self: Arc<Self>) {
        let mut place = self.lock();
        place.is_overdue = true;
        if let Some(work) = place.here.take() {
            place.go(work, &self.runtime);
        }
    }
}

impl<T: Send + 'static> Drop for Errand<T> {
    fn drop(&mut self) {
        if let Some(work) = self.0.lock().here.take() {
            self.0.runtime.spawn(work);
        }
    }
}

fn joined<T>(result: Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    match result {
        Ok(result) => result,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => {
                let message = "the runtime is shutting down: nobody knows what became of the call";
                Err(Error::new(ErrorKind::Indeterminate, message))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::task::yield_now;

    use super::*;

    fn tasks() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    /// Work that takes so long, and what tells whether it is done.
    fn work(length: Duration) -> (Work<u32>, Arc<AtomicBool>) {
        let done = Arc::new(AtomicBool::new(false));
        let sets = done.clone();
        let work = async move {
            sleep(length).await;
            sets.store(true, Ordering::SeqCst);
            Ok(7)
        };
        (Box::pin(work), done)
    }

    async fn poll_once<F: Future + Unpin>(future: &mut F) {
        poll_fn(|cx| {
            assert!(Pin::new(&mut *future).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_quick_needs_no_task() {
        let (work, _) = work(QUICK / 2);
        let watch = async {
            sleep(QUICK / 4).await;
            tasks()
        };
        let (result, tasks) = tokio::join!(run(work), watch);
        assert_eq!((result.unwrap(), tasks), (7, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_longer_goes_on_on_a_task_and_its_caller_hears_of_its_end() {
        let (work, _) = work(QUICK * 3);
        let watch = async {
            sleep(QUICK * 2).await;
            tasks()
        };
        let (result, tasks) = tokio::join!(run(work), watch);
        assert_eq!((result.unwrap(), tasks), (7, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_polls_any_more_is_brought_to_an_end() {
        let (work, done) = work(QUICK / 2);
        let mut forgotten = Box::pin(run(work));
        poll_once(&mut forgotten).await;
        sleep(QUICK * 2).await;
        assert!(done.load(Ordering::SeqCst));
        assert_eq!(forgotten.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_half_way_is_brought_to_an_end() {
        let (work, done) = work(QUICK / 2);
        let mut dropped = Box::pin(run(work));
        poll_once(&mut dropped).await;
        drop(dropped);
        sleep(QUICK).await;
        assert!(done.load(Ordering::SeqCst));
        assert_eq!(tasks(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_never_polled_is_never_begun() {
        let (work, done) = work(Duration::ZERO);
        drop(run(work));
        sleep(QUICK * 2).await;
        assert!(!done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_panic_is_the_callers_and_nobody_works_on() {
        for length in [Duration::ZERO, QUICK * 2] {
            let work: Work<()> = Box::pin(async move {
                sleep(length).await;
                panic!("on purpose")
            });
            let ended = tokio::spawn(run(work)).await.unwrap_err();
            assert!(ended.is_panic());
            yield_now().await;
            assert_eq!(tasks(), 0, "{length:?}");
        }
    }
}
