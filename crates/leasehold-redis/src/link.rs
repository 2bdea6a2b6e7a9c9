//! The connections of one store: calls go out, messages come in, whatever happens to the servers.
//!
//! Many tasks share one connection per server, so that concurrent calls become one pipeline by themselves, and
//! a call costs no hop beyond the client's own. Every call ends within its time: with an answer, with
//! `Unavailable` (it did not run), or with `Indeterminate` (nobody knows). It never repeats a request that may
//! have run; that is for the keeper, which knows that ids make it safe.

mod cluster;
mod crowd;
mod dial;
mod find;
mod map;
mod node;
mod start;
#[cfg(test)]
mod tests;
mod vote;
mod way;
mod wire;
mod writer;

use std::sync::Arc;

use leasehold_core::{Check, Error, ErrorKind, Result, Wakes};
use redis::{Cmd, Value};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};

use crowd::Word;
pub(crate) use map::Map;
pub(crate) use node::pause;
use start::Started;
use way::Way;
pub(crate) use wire::Wire;

use crate::fault::{Refusal, Silence, Unreachable};
use crate::inbox::{Hear, Inboxes};
use crate::script::{Ack, Call};
use crate::secret::Secret;
use crate::url::{Target, Topology};

impl Call {
    fn by_hash(&self, way: &Way) -> Cmd {
        self.command("EVALSHA", self.script.sha1(), &way.secret(), &way.replication_id())
    }

    /// Carries the whole script, which the server keeps.
    fn by_source(&self, way: &Way) -> Cmd {
        self.command("EVAL", self.script.source(), &way.secret(), &way.replication_id())
    }

    /// For the server of this replication id, as far as it is known. Messages are proven with the secret.
    pub(crate) fn command(&self, verb: &str, script: &str, secret: &str, here: &str) -> Cmd {
        // The fence is named once.
        let keys = || self.keys.iter().chain(self.members.iter().flat_map(|call| &call.keys[1..]));
        let args = || self.args.iter().chain(self.members.iter().flat_map(|call| &call.args));
        let (count, size) = keys().chain(args()).fold((0, 0), |(n, size), word| (n + 1, size + word.len()));
        let size = size + secret.len() + here.len();
        // With room for the number of keys.
        let mut command = Cmd::with_capacity(5 + count, verb.len() + script.len() + size + 4);
        command.arg(verb).arg(script).arg(keys().count());
        for word in keys().chain(args()) {
            command.arg(word);
        }
        command.arg(secret).arg(here);
        command
    }
}

/// The connections of one store; clones share them, and the last one closes them.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    target: Arc<Target>,
    inboxes: Arc<Inboxes>,
    started: OnceCell<Started>,
}

impl Link {
    /// Connections to what the URL named: none yet.
    pub(crate) fn new(target: Target, secret: Secret) -> Self {
        let (target, inboxes) = (Arc::new(target), Arc::new(Inboxes::new(Arc::new(secret))));
        Self { inner: Arc::new(Inner { target, inboxes, started: OnceCell::new() }) }
    }

    /// Whether keys must share a slot to be used together.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.inner.target.topology, Topology::Cluster { .. })
    }

    /// How many replicas must acknowledge a grant.
    pub(crate) fn min_replicas(&self) -> u32 {
        self.inner.target.min_replicas
    }

    /// Connects, and from now on passes messages on this channel to `hear`. After every interruption of the
    /// subscription it says [`look_all`](leasehold_core::Wake::look_all).
    pub(crate) async fn open(&self, channel: Vec<u8>, wakes: Wakes, hear: Hear) -> Result<()> {
        let started = self.started().await?;
        let opened = self.inner.inboxes.add(channel, wakes, hear);
        match timeout_at(self.deadline() + self.inner.target.connect_timeout, opened).await {
            Ok(Ok(result)) => result,
            _ => Err(started.why_not().await),
        }
    }

    /// Connects, and answers what was found in the servers' settings then.
    pub(crate) async fn checks(&self) -> Result<&[Check]> {
        Ok(self.started().await?.checks())
    }

    /// Runs a script, together with others where many ask for that.
    pub(crate) async fn call(&self, mut call: Call) -> Result<Value> {
        let until = self.deadline();
        let started = self.started().await?;
        let asker = started.crowd().filter(|_| call.joins).map(|crowd| crowd.enter());
        if let Some(asker) = asker.as_ref().filter(|asker| asker.is_in_company()) {
            match asker.ask(call, until).await {
                Word::Said(said) => return said.map_err(Silence::into_error),
                Word::Alone(back) => call = back,
            }
        }
        self.call_alone(started, &call, until).await
    }

    async fn call_alone(&self, started: &Started, call: &Call, until: Instant) -> Result<Value> {
        let ack = if self.min_replicas() > 0 { call.ack } else { Ack::Free };
        let mut again = Again::until(until);
        let mut asked = None;
        loop {
            let (way, asking) = match asked.take() {
                Some(address) => (Box::pin(Way::to(&started.at(&address), ack, until)).await, true),
                None => match started.route_now(call.slot, ack) {
                    Some(way) => (Ok(way), false),
                    None => (Box::pin(started.route(call.slot, ack, until)).await, false),
                },
            };
            let way = way.map_err(|error| again.instead_of(error))?;
            let wire = way.wire();
            let answer = match run(&way, call, asking, until).await {
                Ok(Value::ServerError(error)) => error,
                Ok(value) => return Ok(value),
                Err(silence) => {
                    started.look_around();
                    return Err(silence.into_error());
                }
            };
            let refusal = Refusal::of(&answer, wire.address());
            let redirected = matches!(refusal, Refusal::Moved(_) | Refusal::Ask(_));
            let error = match refusal {
                Refusal::Final(error) => return Err(error),
                Refusal::Moved(_) | Refusal::Ask(_) if !self.is_cluster() => return Err(in_a_cluster()),
                Refusal::Moved(to) => {
                    started.moved(call.slot, &to);
                    Unreachable::new("the key's slot keeps moving: try again in a moment").to_error()
                }
                Refusal::Ask(to) => {
                    asked = Some(to);
                    Unreachable::new("the key's slot is being moved: try again in a moment").to_error()
                }
                Refusal::NotNow(error) => {
                    started.outdated(wire);
                    error
                }
                Refusal::NoScript => Unreachable::new("the server keeps forgetting its scripts").to_error(),
            };
            Box::pin(again.after(error, redirected)).await?;
        }
    }

    /// Runs several scripts at once. A server that is in trouble delays only its own.
    pub(crate) async fn calls(&self, calls: Vec<Call>) -> Vec<Result<Value>> {
        futures_util::future::join_all(calls.into_iter().map(|call| self.call(call))).await
    }

    /// The servers that [`command`](Self::command) can be sent to, in an order that stays.
    pub(crate) async fn primaries(&self) -> Result<Vec<String>> {
        let started = self.started().await?;
        Ok(started.map().nodes().iter().map(|(address, _)| address.to_string()).collect())
    }

    /// Sends a command that only reads to one of the primaries.
    pub(crate) async fn command(&self, primary: &str, command: &Cmd) -> Result<Value> {
        let until = self.deadline();
        let map = self.started().await?.map();
        let node = map.nodes().iter().find(|(address, _)| address.to_string() == primary);
        let Some((_, node)) = node else {
            let message = format!("{primary} is no primary any more: start again from the first");
            return Err(Error::new(ErrorKind::Unavailable, message).at("redis"));
        };
        let wire = node.connected(until).await?;
        match wire.send(command, until).await.map_err(Silence::into_error)? {
            Value::ServerError(error) => Err(match Refusal::of(&error, wire.address()) {
                Refusal::Final(error) | Refusal::NotNow(error) => error,
                _ => in_a_cluster(),
            }),
            value => Ok(value),
        }
    }

    async fn started(&self) -> Result<&Started> {
        let inner = &self.inner;
        match inner.started.get() {
            Some(started) => Ok(started),
            // In a box, as everything rare below: a call is moved about as large as the largest of its futures.
            None => {
                let connect = || Started::new(&inner.target, &inner.inboxes);
                Box::pin(inner.started.get_or_try_init(connect)).await
            }
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.inner.target.timeout
    }
}

/// Runs the script, by its hash or, where the server does not know that, by its source.
async fn run(way: &Way, call: &Call, asking: bool, until: Instant) -> Result<Value, Silence> {
    let value = if way.is_plain() && !asking {
        way.wire().send(&call.by_hash(way), until).await?
    } else {
        Box::pin(way.send(call.by_hash(way), call, asking, until)).await?
    };
    match value {
        Value::ServerError(error) if error.code() == "NOSCRIPT" => {
            tracing::debug!(script = call.script.name, "loading");
            Box::pin(way.send(call.by_source(way), call, asking, until)).await
        }
        value => Ok(value),
    }
}

/// So many redirections are followed at once.
const REDIRECTIONS: u32 = 3;

/// When to try again, and when to stop.
struct Again {
    until: Instant,
    failed: u32,
    /// What a server said last.
    said: Option<Error>,
}

impl Again {
    fn until(until: Instant) -> Self {
        Self { until, failed: 0, said: None }
    }

    /// Pauses, or gives the error back when there is no time left. Who was sent elsewhere goes there at once,
    /// unless it is sent round in circles.
    async fn after(&mut self, error: Error, redirected: bool) -> Result<()> {
        self.failed += 1;
        let pause = pause(self.failed);
        let is_sent_on = redirected && self.failed <= REDIRECTIONS;
        if !is_sent_on && Instant::now() + pause >= self.until {
            return Err(error);
        }
        self.said = Some(error);
        if !is_sent_on {
            sleep(pause).await;
        }
        Ok(())
    }

    /// What a server said tells more than that none could be reached since.
    fn instead_of(&mut self, error: Error) -> Error {
        self.said.take().filter(|_| error.is_retryable()).unwrap_or(error)
    }
}

fn in_a_cluster() -> Error {
    let message = "the server belongs to a cluster: use redis+cluster://";
    Error::new(ErrorKind::Invalid, message).at("redis")
}
