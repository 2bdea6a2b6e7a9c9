//! The least that a fair lock with tokens could cost: two small scripts, and messages to who is next.
//!
//! No owner to check, no renewal, no waiter that may have died, nothing to look at: what remains of ours when everything
//! is left out that can be. It tells how much of a hand-over is Redis and the client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_bench::round::Inside;
use leasehold_bench::subject::{Outcome, Subject};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, Script, Value,
};
use tokio::sync::oneshot;

const LEASE_MILLIS: u64 = 30_000;
/// Keys: the holder, the queue, the fence. Arguments: who asks (an inbox, a space, a number), the lease.
const CLAIM: &str = "
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[3])
end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0";
/// The same keys. Arguments: who releases, the lease.
const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local next = redis.call('LPOP', KEYS[2])
if not next then
  return redis.call('DEL', KEYS[1])
end
local token = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[1], next, 'PX', ARGV[2])
redis.call('PUBLISH', string.match(next, '%S+'), next .. ' ' .. token)
return 1";

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<u64>>>>;

/// One connection and who waits for a message on it.
#[derive(Clone, Debug)]
struct Wire {
    connection: MultiplexedConnection,
    inbox: String,
    waiting: Waiting,
}

impl Wire {
    async fn connect(url: &str, inbox: String) -> Outcome<Self> {
        let info = url.into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let with_pushes = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let waiting = Waiting::default();
        let told = waiting.clone();
        let hear = move |push: PushInfo| -> Result<(), ()> {
            if push.kind == PushKind::Message {
                hear(&push, &told);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(hear);
        let client = Client::open(info.set_tcp_settings(tcp).set_redis_settings(with_pushes))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(&inbox).await?;
        Ok(Self { connection, inbox, waiting })
    }

    async fn call(&self, script: &Script, name: &str, who: &str) -> Outcome<u64> {
        let (queue, mut connection) = (format!("{name}/queue"), self.connection.clone());
        let mut call = script.prepare_invoke();
        call.key(name).key(queue).key("bench/fence").arg(who).arg(LEASE_MILLIS);
        Ok(call.invoke_async(&mut connection).await?)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptQueue {
    wires: Arc<[Wire]>,
    next: Arc<AtomicUsize>,
    claim: Arc<Script>,
    release: Arc<Script>,
}

impl ScriptQueue {
    /// Whose tasks share so many connections.
    pub(crate) async fn connect(url: &str, connections: usize) -> Outcome<Self> {
        let mut wires = Vec::new();
        for number in 0..connections {
            wires.push(Wire::connect(url, format!("bench/inbox/{number}")).await?);
        }
        let (claim, release) = (Arc::new(Script::new(CLAIM)), Arc::new(Script::new(RELEASE)));
        Ok(Self { wires: wires.into(), next: Arc::default(), claim, release })
    }
}

impl Subject for ScriptQueue {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let wire = &self.wires[self.next.fetch_add(1, Ordering::Relaxed) % self.wires.len()];
        let (sender, promoted) = oneshot::channel();
        let number = fastrand::u64(..);
        let who = format!("{} {number}", wire.inbox);
        lock(&wire.waiting).insert(number, sender);
        if wire.call(&self.claim, name, &who).await? == 0 {
            promoted.await?;
        } else {
            lock(&wire.waiting).remove(&number);
        }
        inside.await;
        wire.call(&self.release, name, &who).await?;
        Ok(())
    }
}

fn hear(push: &PushInfo, waiting: &Waiting) {
    let [_, Value::BulkString(message)] = push.data.as_slice() else { return };
    // The inbox, who it is for, and the token.
    let mut words = std::str::from_utf8(message).unwrap_or_default().split(' ').skip(1);
    let mut number = || words.next()?.parse().ok();
    let numbers = number().zip(number());
    let Some((who, token)) = numbers else { return };
    if let Some(promoted) = lock(waiting).remove(&who) {
        // Who waited may have gone.
        let _ = promoted.send(token);
    }
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<u64>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
