//! The way in: requests, and the thread that lives as long as somebody can make them.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use leasehold_core::{Error, ErrorKind, Info, Result};
use tokio::sync::oneshot;

use crate::office::Office;
use crate::settings::Settings;
use crate::step::{Mode, Step};
use crate::wake::Inboxes;

/// The open file and its thread. Dropping it ends the thread and closes the file.
#[derive(Debug)]
pub(crate) struct Clerk {
    office: Arc<Office>,
    thread: Option<JoinHandle<()>>,
}

impl Clerk {
    /// Starts the thread. The file is opened with the first request.
    pub(crate) fn start(path: &Path, settings: Settings) -> Result<Self> {
        let office = Arc::new(Office::new(path.to_owned(), settings));
        let serve = {
            let office = office.clone();
            move || office.serve()
        };
        let thread = std::thread::Builder::new().name("leasehold-sqlite".to_owned()).spawn(serve);
        let thread = thread.map_err(|e| {
            let message = "no thread to be had: raise the limit on processes";
            Error::new(ErrorKind::Unavailable, message).at("sqlite").because(e)
        })?;
        Ok(Self { office, thread: Some(thread) })
    }

    pub(crate) fn path(&self) -> &Path {
        self.office.path()
    }

    pub(crate) fn info(&self) -> &Info {
        self.office.info()
    }

    pub(crate) fn inboxes(&self) -> &Inboxes {
        self.office.inboxes()
    }

    /// Opens the file, if it is not open, and has the thread tidy up what others left.
    pub(crate) async fn open(&self) -> Result<()> {
        self.have_done(Mode::Read, |_| Ok(())).await?;
        self.office.ask_for_chores();
        Ok(())
    }

    /// Carries out a request: completely or, when this future is dropped early enough, not at all.
    pub(crate) async fn carry_out<T, F>(&self, mode: Mode, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&mut Step<'_>) -> Result<T> + Send + 'static,
    {
        // A call that never waits must still let the runtime's other tasks have their turn.
        tokio::task::coop::consume_budget().await;
        if mode != Mode::Read && self.office.always_syncs() {
            return self.have_done(mode, body).await;
        }
        match self.office.try_alone(mode, &body) {
            Some(result) => result,
            None => {
                let answer = self.office.enter(mode, body);
                self.office.serve_here();
                hear(answer).await
            }
        }
    }

    /// Leaves a request to the thread.
    pub(crate) async fn have_done<T, F>(&self, mode: Mode, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&mut Step<'_>) -> Result<T> + Send + 'static,
    {
        let answer = self.office.enter(mode, body);
        self.office.ring();
        hear(answer).await
    }
}

async fn hear<T>(answer: oneshot::Receiver<Result<T>>) -> Result<T> {
    answer.await.unwrap_or_else(|_| {
        let message = "the store's thread has ended: open the store again";
        Err(Error::new(ErrorKind::Indeterminate, message).at("sqlite"))
    })
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.office.close();
        if let Some(thread) = self.thread.take() {
            // Nobody is left to tell that it panicked; those who waited for it were told.
            let _ = thread.join();
        }
    }
}
