//! One server, and a task that keeps a connection to it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::{Result, back_off};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::dial::Dialer;
use super::find::Finder;
use super::wire::Wire;
use super::writer::Writer;
use crate::fault::Unreachable;

/// A connection that lived this long was a good one: the next failure starts with a short pause again.
const SETTLED: Duration = Duration::from_secs(1);

/// How often a server is asked what it calls its history.
const ASK_WHO: Duration = Duration::from_secs(5);

/// What is known of a server.
#[derive(Clone, Debug)]
enum Line {
    Up(Wire),
    /// Connecting; with what went wrong last.
    Down(Option<Unreachable>),
}

/// A server; dropped, it closes its connection.
#[derive(Debug)]
pub(crate) struct Node {
    line: watch::Receiver<Line>,
    task: JoinHandle<()>,
    finder: Finder,
    dialer: Dialer,
    /// Where connections live, whoever asks for one.
    runtime: Handle,
    writer: OnceLock<Arc<Writer>>,
}

impl Node {
    /// Starts connecting. Must be called on a runtime, which the connection lives on.
    pub(super) fn start(finder: Finder, dialer: Dialer) -> Arc<Self> {
        let (sender, line) = watch::channel(Line::Down(None));
        let task = tokio::spawn(keep_connected(finder.clone(), dialer.clone(), sender));
        let (runtime, writer) = (Handle::current(), OnceLock::new());
        Arc::new(Self { line, task, finder, dialer, runtime, writer })
    }

    /// The way for calls that replicas must acknowledge.
    pub(super) fn writer(&self) -> &Arc<Writer> {
        self.writer.get_or_init(|| {
            let _on = self.runtime.enter();
            Arc::new(Writer::start(self.finder.clone(), self.dialer.clone()))
        })
    }

    /// The connection, if there is one now.
    pub(super) fn wire(&self) -> Option<Wire> {
        match &*self.line.borrow() {
            Line::Up(wire) if !self.task.is_finished() => Some(wire.clone()),
            _ => None,
        }
    }

    /// The connection, as soon as there is one.
    pub(super) async fn connected(&self, until: Instant) -> Result<Wire> {
        let told = |line: &Line| match line {
            Line::Up(_) => true,
            Line::Down(why) => why.as_ref().is_some_and(Unreachable::is_final),
        };
        self.once(told, until).await.map_err(|why| why.to_error())
    }

    /// How the first attempt to connect ended.
    pub(super) async fn first_attempt(&self, until: Instant) -> Result<Wire, Unreachable> {
        self.once(|line| !matches!(line, Line::Down(None)), until).await
    }

    async fn once(&self, is_so: impl FnMut(&Line) -> bool, until: Instant) -> Result<Wire, Unreachable> {
        let mut line = self.line.clone();
        let waited = match timeout_at(until, line.wait_for(is_so)).await {
            Ok(Ok(line)) => outcome(&line),
            Ok(Err(_)) => Err(runtime_ended()),
            Err(_) => outcome(&self.line.borrow()),
        };
        // The last line that it left says nothing any more.
        if self.task.is_finished() { Err(runtime_ended()) } else { waited }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn outcome(line: &Line) -> Result<Wire, Unreachable> {
    match line {
        Line::Up(wire) => Ok(wire.clone()),
        Line::Down(Some(why)) => Err(why.clone()),
        Line::Down(None) => Err(Unreachable::new("no connection in time: nothing was sent")),
    }
}

fn runtime_ended() -> Unreachable {
    Unreachable::new("the runtime that connected has ended: connect again")
}

async fn keep_connected(finder: Finder, dialer: Dialer, line: watch::Sender<Line>) {
    let mut failed = 0;
    loop {
        match finder.connect(&dialer).await {
            Ok(wire) => {
                tracing::debug!(server = %wire.address(), "connected");
                let since = Instant::now();
                let health = wire.health().clone();
                line.send_replace(Line::Up(wire.clone()));
                while timeout(ASK_WHO, health.given_up()).await.is_err() {
                    if let Some(check) = dialer.look_at(&wire).await {
                        // The next attempt to connect says so.
                        tracing::debug!(%check, "given up");
                        health.give_up();
                    }
                }
                tracing::debug!("disconnected");
                line.send_replace(Line::Down(None));
                // One that breaks at once must not be made again and again without a pause.
                failed = if since.elapsed() >= SETTLED { 0 } else { failed + 1 };
            }
            Err(why) => {
                tracing::debug!(?why, "cannot connect");
                line.send_replace(Line::Down(Some(why)));
                failed += 1;
            }
        }
        if failed > 0 {
            sleep(pause(failed)).await;
        }
    }
}

/// How long to wait after so many failures.
pub(crate) fn pause(failed: u32) -> Duration {
    back_off(failed.saturating_sub(1), Duration::from_millis(15), Duration::from_millis(750))
}
