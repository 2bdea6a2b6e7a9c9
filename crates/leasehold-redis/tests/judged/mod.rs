//! What the judged topologies have in common: servers that trials use one after the other, and a look at what is
//! stored that has nothing of the store in it but its format.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Error, ErrorKind, Fut, Key, Result, Store};
use leasehold_servers::{Mode, Proxy};

/// Short, but long against a call on a busy machine.
const LEASE: Duration = Duration::from_millis(500);

/// Some servers.
pub(crate) trait Place: Debug + Send + Sync + 'static {
    /// Whether their program is there.
    ///
    /// # Errors
    /// How to get it.
    fn is_there() -> Result<()> {
        Ok(())
    }
    /// Starts them. They are used for many trials.
    fn start() -> Self;
    /// How clients reach them.
    fn url(&self) -> String;
    /// What clients make of that.
    fn store(url: &str) -> Result<Arc<dyn Store>>;
    /// Where the keys are, to look from outside.
    fn primaries(&mut self) -> Vec<u16>;
    /// What they have about a lock.
    fn look(&mut self, key: &Key) -> redis::RedisResult<RawState> {
        self.primaries().iter().try_fold(RawState::default(), |sum, port| Ok(plus(sum, &look(*port, key)?)))
    }
    /// Stops a server without warning, and sees to it that the others go on or that it comes back.
    fn restart(&mut self) -> Result<(), &'static str>;
    /// What stands between the clients and them, where something does.
    fn proxy(&self) -> Option<&Proxy>;
}

/// Judges the store on these servers.
pub(crate) fn judge<P: Place>(name: &'static str) -> ExitCode {
    let pool: Arc<Pool<P>> = Arc::default();
    let part = victim(P::store);
    part.unwrap_or_else(|| {
        run(name, move || {
            P::is_there()?;
            Ok(Judged::new(pool.clone()))
        })
    })
}

type Pool<P> = Mutex<Vec<P>>;

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Servers that one trial has for itself.
#[derive(Debug)]
struct Judged<P: Place> {
    place: Mutex<Option<P>>,
    url: String,
    pool: Arc<Pool<P>>,
}

impl<P: Place> Judged<P> {
    fn new(pool: Arc<Pool<P>>) -> Self {
        let idle = locked(&pool).pop();
        let mut place = idle.unwrap_or_else(P::start);
        place.proxy().into_iter().for_each(|proxy| proxy.set(Mode::Pass));
        for port in place.primaries() {
            let flushed = connect(port).and_then(|mut server| redis::cmd("FLUSHALL").exec(&mut server));
            flushed.expect("a primary takes commands");
        }
        Self { url: place.url(), place: Mutex::new(Some(place)), pool }
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        match self.with(|place| place.proxy().map(|proxy| proxy.set(mode))) {
            Some(()) => Hook::Does(Box::pin(async { Ok(()) })),
            None => Hook::Cannot("nothing stands between the clients and these servers"),
        }
    }

    fn with<T>(&self, body: impl FnOnce(&mut P) -> T) -> T {
        body(locked(&self.place).as_mut().expect("it is given back when the trial ends"))
    }
}

impl<P: Place> Drop for Judged<P> {
    fn drop(&mut self) {
        locked(&self.pool).extend(locked(&self.place).take());
    }
}

impl<P: Place> Fixture for Judged<P> {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { P::store(&self.url) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move { self.with(|place| place.look(key)).map_err(failed) })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn kill_holder<'a>(&'a self, key: &'a Key, lease: Duration) -> Hook<'a, Killed> {
        Hook::Does(Box::pin(kill_one_that_holds(&self.url, key, lease)))
    }

    fn cut(&self) -> Hook<'_> {
        self.set(Mode::Hold)
    }

    fn heal(&self) -> Hook<'_> {
        self.set(Mode::Pass)
    }

    fn stall(&self) -> Hook<'_> {
        self.set(Mode::Stall)
    }

    fn restart_server(&self) -> Hook<'_> {
        match self.with(Place::restart) {
            Ok(()) => Hook::Does(Box::pin(async { Ok(()) })),
            Err(reason) => Hook::Cannot(reason),
        }
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "the test's own look at the server failed").because(error)
}

fn connect(port: u16) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_connection()
}

/// Counts the claims in one key.
const COUNT: &str = r"
local holders, units, waiters = 0, 0, 0
local function count(held, wanted)
  if held > 0 then holders, units = holders + 1, units + held end
  if held < wanted then waiters = waiters + 1 end
end
-- Plain ones have columns, any other is MessagePack, where 111 stands.
local function count_first(text)
  if string.byte(text, 18) ~= 111 then
    local units = struct.unpack('>I8', text, 27)
    return count(units, units)
  end
  local _, _, _, _, _, _, _, _, _, held, wanted = cmsgpack.unpack(string.sub(text, 19))
  if held then count(held, wanted) end
end
local function count_next(text)
  if string.byte(text, 17) ~= 111 then
    return count(0, (struct.unpack('>I8', text, 26)))
  end
  local _, _, _, _, held, wanted = cmsgpack.unpack(string.sub(text, 18))
  count(held, wanted)
end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'zset' then
  for i, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if i == 1 then
      count_first(member)
    elseif i > 2 and #member > 17 then
      count_next(member)
    end
  end
elseif kind == 'string' then
  count_first(redis.call('GET', KEYS[1]))
end
return { holders, string.format('%d', units), waiters }";

/// What a server has about a lock. Every refusal is counted: a trial has its servers for itself.
pub(crate) fn look(port: u16, key: &Key) -> redis::RedisResult<RawState> {
    let names = [format!("leasehold{{:{}}}", key.as_str()), format!("leasehold:{}", key.as_str())];
    let mut state = RawState::default();
    let mut server = connect(port)?;
    let stored: Vec<Vec<u8>> = redis::cmd("KEYS").arg("leasehold*").query(&mut server)?;
    for name in &stored {
        let is_lock = names.iter().any(|lock| lock.as_bytes() == name);
        let residue = usize::from(is_lock || name.starts_with(b"leasehold.refused:"));
        state = plus(state, &RawState { residue, ..RawState::default() });
        if is_lock {
            let (holders, units, waiters): (usize, u64, usize) =
                redis::cmd("EVAL").arg(COUNT).arg(1).arg(name).query(&mut server)?;
            state = plus(state, &RawState { holders, units, waiters, residue: 0 });
        }
    }
    Ok(state)
}

fn plus(one: RawState, two: &RawState) -> RawState {
    RawState {
        holders: one.holders + two.holders,
        units: one.units + two.units,
        waiters: one.waiters + two.waiters,
        residue: one.residue + two.residue,
    }
}
