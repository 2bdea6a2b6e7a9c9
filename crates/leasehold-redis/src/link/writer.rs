//! Writes that count only when replicas have them.
//!
//! `WAIT` counts what its own connection wrote and blocks that connection, so these calls have one of their own,
//! and a task that sends whatever has gathered as one pipeline with one `WAIT` at its end. What gathers
//! meanwhile is the next one.
//!
//! A request that is repeated may write nothing, and its first copy came by another connection: `WAIT` would then wait
//! for nothing. So each pipeline writes a [`Beat`] before its `WAIT`, and the server's replicas have every earlier write
//! when they have that.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::dial::Dialer;
use super::find::Finder;
use super::node::Node;
use super::wire::Wire;
use crate::fault::Silence;
use crate::script::BEAT;

/// The most calls in one pipeline.
const BATCH: usize = 256;

/// A write that changes nothing.
#[derive(Debug)]
pub(super) struct Beat {
    /// What it writes again as it is.
    pub(super) fence: Vec<u8>,
    /// Whether the fence's slot is not this server's yet.
    pub(super) asking: bool,
}

impl Beat {
    /// Adds it to a pipeline, with the `WAIT` for it.
    fn add_to(&self, commands: &mut Pipeline, verb: &str, script: &str, replicas: u32, patience: u64) {
        if self.asking {
            commands.cmd("ASKING");
        }
        commands.cmd(verb).arg(script).arg(1).arg(&self.fence);
        commands.cmd("WAIT").arg(replicas).arg(patience);
    }
}

/// One call, and who waits for its answer.
#[derive(Debug)]
struct Job {
    wire: Wire,
    commands: Vec<Cmd>,
    beat: Beat,
    answer: oneshot::Sender<Result<Value, Silence>>,
}

/// The acknowledged calls to one server; dropped, it closes its connection.
#[derive(Debug)]
pub(super) struct Writer {
    node: Arc<Node>,
    jobs: mpsc::Sender<Job>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Starts connecting. Must be called on a runtime, which the connection lives on.
    pub(super) fn start(finder: Finder, dialer: Dialer) -> Self {
        let (replicas, timeout) = (dialer.target().min_replicas, dialer.target().timeout);
        let (jobs, waiting) = mpsc::channel(BATCH);
        let task = tokio::spawn(write(waiting, replicas, timeout));
        Self { node: Node::start(finder, dialer), jobs, task }
    }

    /// The server, by the connection that these calls use.
    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Sends commands that belong together; answers what the last of them did, once enough replicas have it.
    pub(super) async fn send(
        &self,
        wire: &Wire,
        commands: Vec<Cmd>,
        beat: Beat,
        until: Instant,
    ) -> Result<Value, Silence> {
        let (sender, answer) = oneshot::channel();
        let job = Job { wire: wire.clone(), commands, beat, answer: sender };
        let answer = timeout_at(until, async {
            self.jobs.send(job).await.map_err(|_| Silence::Unsent)?;
            answer.await.unwrap_or(Err(Silence::Late))
        });
        answer.await.unwrap_or(Err(Silence::Late))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write(mut waiting: mpsc::Receiver<Job>, replicas: u32, timeout: Duration) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        // Who gave up before anything was sent is not sent.
        batch.retain(|job| !job.answer.is_closed());
        if !batch.is_empty() {
            flush(std::mem::take(&mut batch), replicas, timeout).await;
        }
    }
}

/// Sends a batch and hands out its answers.
async fn flush(mut batch: Vec<Job>, replicas: u32, timeout: Duration) {
    // The youngest connection: an older one may be gone, and nothing of the batch was sent on it. What was made for that is
    // not for this server: it may be another.
    let Some(wire) = batch.last().map(|job| job.wire.clone()) else { return };
    for job in batch.extract_if(.., |job| !job.wire.is(&wire)) {
        let _ = job.answer.send(Err(Silence::Unsent));
    }
    let mut commands = redis::pipe();
    for command in batch.iter().flat_map(|job| &job.commands) {
        commands.add_command(command.clone());
    }
    // Half of the time, so that who waits hears that replicas are missing, and not just that time is over.
    let patience = u64::try_from(timeout.as_millis() / 2).unwrap_or(u64::MAX).max(1);
    let until = Instant::now() + timeout;
    let Some(beat) = batch.last().map(|job| &job.beat) else { return };
    beat.add_to(&mut commands, "EVALSHA", BEAT.sha1(), replicas, patience);
    let mut answers = wire.send_all(&commands, until).await;
    if let Ok(values) = &mut answers
        && let [.., Value::ServerError(error), _] = values.as_slice()
        && error.code() == "NOSCRIPT"
    {
        // The server learns the script. Everything before it was carried out.
        let mut again = redis::pipe();
        beat.add_to(&mut again, "EVAL", BEAT.source(), replicas, patience);
        let acknowledged = wire.send_all(&again, until).await;
        let most = values.len() - 2;
        values.truncate(most);
        match acknowledged {
            Ok(more) => values.extend(more.into_iter().rev().take(2).rev()),
            Err(silence) => answers = Err(silence),
        }
    }
    match answers {
        Ok(mut values) => {
            let by = match (values.pop(), values.pop()) {
                (_, Some(Value::ServerError(error))) | (Some(Value::ServerError(error)), _) => Err(error),
                (Some(Value::Int(by)), _) => Ok(by),
                _ => Ok(0),
            };
            let mut values = values.into_iter();
            for job in batch {
                let value = values.by_ref().take(job.commands.len()).last().unwrap_or(Value::Nil);
                let answer = match (value, &by) {
                    // What did not run needs nobody's acknowledgement.
                    (value @ Value::ServerError(_), _) => Ok(value),
                    (value, Ok(by)) if *by >= i64::from(replicas) => Ok(value),
                    (_, Ok(by)) => Err(Silence::NotAcknowledged { by: *by, wanted: replicas }),
                    (_, Err(error)) => Err(Silence::Unconfirmed(error.clone())),
                };
                let _ = job.answer.send(answer);
            }
        }
        Err(silence) => {
            for job in batch {
                let _ = job.answer.send(Err(silence.copy()));
            }
        }
    }
}
