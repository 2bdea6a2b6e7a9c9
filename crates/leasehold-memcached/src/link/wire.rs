//! A connection: requests go out in order, answers come back in the same order.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::{BootClock, Clock, Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::protocol::{Garbage, Reply, parse};
use crate::time::Offset;

/// How many requests may wait to be sent; the next ones wait for them.
const QUEUE: usize = 1024;

/// What an item has besides its value: its name, and what the server notes about it.
const AROUND: usize = 512;

/// How many answers a request has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answers {
    /// This many.
    Exactly(usize),
    /// As many as there are lines before `END`.
    UntilEnd,
}

impl Answers {
    fn are_complete(self, replies: &[Reply]) -> bool {
        match self {
            Self::Exactly(count) => replies.len() == count,
            Self::UntilEnd => replies.last().is_some_and(|last| match last {
                Reply::Line(line) => line == "END",
                _ => true,
            }),
        }
    }
}

#[derive(Debug)]
struct Request {
    text: Vec<u8>,
    answers: Answers,
    done: oneshot::Sender<Vec<Reply>>,
}

/// A connection and the task that serves it, which ends with it.
#[derive(Debug)]
pub(crate) struct Wire {
    requests: mpsc::Sender<Request>,
    task: AbortHandle,
    is_garbled: Arc<AtomicBool>,
    generation: u64,
    timeout: Duration,
    time: Mutex<Option<Look>>,
    largest: AtomicUsize,
    /// Whether the server evicts items, in its own word.
    evictions: OnceLock<String>,
    /// Since when the server has forgotten nothing, as it was last read; 0 when that is not known.
    born: AtomicU64,
}

/// When the server's time was asked for, and what came of it.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: u64,
    offset: Offset,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, generation: u64, timeout: Duration) -> Self {
        let (requests, receiver) = mpsc::channel(QUEUE);
        let is_garbled = Arc::<AtomicBool>::default();
        let garbled = is_garbled.clone();
        let task = tokio::spawn(async move {
            if serve(stream, receiver).await == Err(Garbage) {
                garbled.store(true, Ordering::Release);
            }
        });
        let (time, largest, evictions, born) = Default::default();
        let task = task.abort_handle();
        Self { requests, task, is_garbled, generation, timeout, time, largest, evictions, born }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_broken(&self) -> bool {
        self.requests.is_closed()
    }

    /// Sends a request and waits for its answers. An error means that it may have been carried out.
    pub(crate) async fn ask(&self, text: Vec<u8>, answers: Answers) -> Result<Vec<Reply>> {
        let (done, answered) = oneshot::channel();
        let asked = async {
            self.requests.send(Request { text, answers, done }).await.ok()?;
            answered.await.ok()
        };
        match timeout(self.timeout, asked).await {
            Ok(Some(replies)) => Ok(replies),
            Ok(None) if self.is_garbled.load(Ordering::Acquire) => {
                Err(Error::new(ErrorKind::Protocol, Garbage.to_string()).at("memcached"))
            }
            Ok(None) => Err(unknown("the connection broke")),
            Err(_) => {
                // What comes now would be taken for the answer to something else's question, or never comes.
                self.task.abort();
                Err(unknown("no answer in time"))
            }
        }
    }

    /// Asks for the server's time.
    pub(super) async fn look(&self) -> Result<()> {
        let sent = BootClock.now().as_millis();
        let replies = self.ask(b"stats\r\n".to_vec(), Answers::UntilEnd).await?;
        let received = BootClock.now().as_millis();
        let seconds = statistic(&replies, "time")?;
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = match *time {
            None => Offset::first(seconds, received),
            Some(before) => before.offset.refined(seconds, sent, received),
        };
        *time = Some(Look { at: received, offset });
        Ok(())
    }

    /// Asks for the server's settings. Above all how large an item may be: to store a larger one would not only fail, the
    /// server removes what was there.
    pub(super) async fn measure(&self) -> Result<()> {
        let replies = self.ask(b"stats settings\r\n".to_vec(), Answers::UntilEnd).await?;
        let most = usize::try_from(statistic(&replies, "item_size_max")?).unwrap_or(usize::MAX);
        self.largest.store(most.saturating_sub(AROUND), Ordering::Release);
        if let Some(found) = told(&replies, "evictions") {
            let _ = self.evictions.set(found.to_owned());
        }
        Ok(())
    }

    /// Whether the server evicts items, as its settings have it.
    pub(crate) fn evictions(&self) -> Option<&str> {
        self.evictions.get().map(String::as_str)
    }

    /// The largest value that the server takes.
    pub(crate) fn largest(&self) -> usize {
        self.largest.load(Ordering::Acquire)
    }

    pub(crate) fn was_born(&self, at: u64) {
        self.born.store(at, Ordering::Release);
    }

    pub(crate) fn born(&self) -> Option<u64> {
        Some(self.born.load(Ordering::Acquire)).filter(|at| *at != 0)
    }

    pub(super) fn looked_at(&self) -> Option<u64> {
        self.last_look().map(|look| look.at)
    }

    /// The server's time in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        let now = BootClock.now().as_millis();
        self.last_look().map_or(now, |look| look.offset.at(now))
    }

    fn last_look(&self) -> Option<Look> {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Something that the server tells about itself.
fn told<'a>(replies: &'a [Reply], name: &str) -> Option<&'a str> {
    replies.iter().find_map(|reply| match reply {
        Reply::Line(line) => line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '),
        _ => None,
    })
}

/// A number that the server tells about itself.
fn statistic(replies: &[Reply], name: &str) -> Result<u64> {
    let value = told(replies, name).and_then(|value| value.parse().ok());
    let odd = || format!("the server does not tell its {name}: use memcached 1.6 or newer");
    value.ok_or_else(|| Error::new(ErrorKind::Protocol, odd()).at("memcached"))
}

fn unknown(why: &str) -> Error {
    let message = format!("{why}, and nobody knows whether it was carried out: ask again");
    Error::new(ErrorKind::Indeterminate, message).at("memcached")
}

/// Serves the connection until it breaks or nobody needs it.
async fn serve(stream: TcpStream, mut requests: mpsc::Receiver<Request>) -> Result<(), Garbage> {
    let (mut reader, mut writer) = stream.into_split();
    let (mut received, mut out) = (Vec::new(), Vec::new());
    let mut asked: VecDeque<(Answers, Vec<Reply>, oneshot::Sender<Vec<Reply>>)> = VecDeque::new();
    loop {
        tokio::select! {
            next = requests.recv() => {
                let Some(mut request) = next else { return Ok(()) };
                // Everything that is there goes out in one piece.
                loop {
                    out.append(&mut request.text);
                    asked.push_back((request.answers, Vec::new(), request.done));
                    match requests.try_recv() {
                        Ok(more) => request = more,
                        Err(_) => break,
                    }
                }
                if writer.write_all(&out).await.is_err() {
                    return Ok(());
                }
                out.clear();
            }
            read = reader.read_buf(&mut received) => {
                if !matches!(read, Ok(count) if count > 0) {
                    return Ok(());
                }
                let mut used = 0;
                while let Some((reply, length)) = parse(&received[used..])? {
                    used += length;
                    let Some((answers, replies, _)) = asked.front_mut() else { return Err(Garbage) };
                    replies.push(reply);
                    if answers.are_complete(replies) && let Some((_, replies, done)) = asked.pop_front() {
                        // Whoever asked may have gone.
                        let _ = done.send(replies);
                    }
                }
                if used == received.len() { drop(take(&mut received)) } else { received.drain(..used); }
            }
        }
    }
}
