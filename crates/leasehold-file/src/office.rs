//! The thread that works with files, so that a slow disk holds up nobody's tasks. It ends with the store.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use leasehold_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A thread, started when there is something to do.
#[derive(Debug, Default)]
pub(crate) struct Office(Mutex<Option<Sender<Job>>>);

impl Office {
    /// Does it on the thread, after what came before. It is done to its end, whether anybody waits or not.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, outcome) = oneshot::channel();
        self.enter(Box::new(move || _ = done.send(catch_unwind(AssertUnwindSafe(work)))))?;
        match outcome.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            // Nobody drops a job.
            Err(_) => Err(Error::new(ErrorKind::Indeterminate, "the store was closed: ask again").at("file")),
        }
    }

    fn enter(&self, job: Job) -> Result<()> {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*jobs {
            Some(jobs) => {
                // It ends when this end is gone.
                let _ = jobs.send(job);
                Ok(())
            }
            None => Self::start(&mut jobs, job),
        }
    }

    fn start(jobs: &mut Option<Sender<Job>>, job: Job) -> Result<()> {
        let (sender, receiver) = channel::<Job>();
        let thread = std::thread::Builder::new().name("leasehold-file".to_owned());
        thread.spawn(move || receiver.into_iter().for_each(|job| job())).map_err(|cause| {
            let message = "cannot start a thread for the files: raise the limit";
            Error::new(ErrorKind::Unavailable, message).because(cause).at("file")
        })?;
        // The other end was just made.
        let _ = jobs.insert(sender).send(job);
        Ok(())
    }
}
