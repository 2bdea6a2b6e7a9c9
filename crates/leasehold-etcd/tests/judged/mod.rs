//! What the judged clusters have in common: servers that trials use one after the other, and a look at what is stored
//! through `etcdctl`.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Fut, Key, Store};
use leasehold_etcd::Etcd;
use leasehold_servers::{Mode, Proxy};

/// Some servers.
pub(crate) trait Place: Debug + Send + Sync + 'static {
    /// The shortest lease that they keep.
    const LEASE: Duration;
    /// How many may wait for one lock without keeping everybody waiting.
    const CROWD: usize;
    /// Starts them. They are used for many trials.
    fn start() -> Self;
    /// How clients reach them.
    fn url(&self) -> String;
    /// What `etcdctl` says.
    fn ctl(&self, words: &[&str]) -> String;
    /// Stops a server without warning, and sees to it that it comes back.
    fn restart(&mut self);
    /// What stands between the clients and them.
    fn proxies(&self) -> Vec<&Proxy>;
}

/// Judges the store on these servers.
pub(crate) fn judge<P: Place>(name: &'static str) -> ExitCode {
    let pool: Arc<Pool<P>> = Arc::default();
    let part = victim(|url| Ok(Arc::new(Etcd::from_url(url)?) as _));
    part.unwrap_or_else(|| run(name, move || Ok(Judged::new(pool.clone()))))
}

type Pool<P> = Mutex<Vec<P>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
        let place = idle.unwrap_or_else(P::start);
        place.proxies().into_iter().for_each(|proxy| proxy.set(Mode::Pass));
        place.ctl(&["del", "--prefix", ""]);
        // A call that fails is told to the suite as it is: a busy machine must not be the reason.
        let url = format!("{}?timeout=5s&connect_timeout=5s", place.url());
        Self { url, place: Mutex::new(Some(place)), pool }
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.with(|place| place.proxies().into_iter().for_each(|proxy| proxy.set(mode)));
        Hook::Does(Box::pin(async { Ok(()) }))
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
        Box::pin(async { Ok(Arc::new(Etcd::from_url(&self.url)?) as _) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(
            async move { Ok(look(&self.with(|place| place.ctl(&["get", "--prefix", "leasehold/"])), key)) },
        )
    }

    fn lease(&self) -> Duration {
        P::LEASE
    }

    fn crowd(&self) -> usize {
        P::CROWD
    }

    fn kill_holder<'a>(&'a self, key: &'a Key) -> Hook<'a> {
        Hook::Does(Box::pin(kill_one_that_holds(&self.url, key, P::LEASE)))
    }

    fn cut(&self) -> Hook<'_> {
        self.set(Mode::Hold)
    }

    fn heal(&self) -> Hook<'_> {
        self.set(Mode::Pass)
    }

    fn restart_server(&self) -> Hook<'_> {
        self.with(Place::restart);
        Hook::Does(Box::pin(async { Ok(()) }))
    }
}

/// Counts the keys of one lock: a line with the name, a line with the value. Every refusal is counted, for a trial has
/// its servers for itself.
fn look(said: &str, key: &Key) -> RawState {
    let lock = format!("leasehold/lock/{}/", key.as_str().replace('%', "%25").replace('/', "%2F"));
    let mut state = RawState::default();
    let lines: Vec<&str> = said.lines().collect();
    for pair in lines.chunks(2) {
        let value: serde_json::Value =
            pair.get(1).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let held = value["claims"][0]["held"].as_u64().unwrap_or(0);
        match pair[0].strip_prefix(&lock).and_then(|rest| rest.split('/').next()) {
            Some("hold") => (state.holders, state.units) = (state.holders + 1, state.units + held),
            Some("more") => {
                (state.holders, state.units, state.waiters) =
                    (state.holders + 1, state.units + held, state.waiters + 1);
            }
            Some("wait") => state.waiters += 1,
            Some(_) => {}
            None if pair[0].starts_with("leasehold/refused/") => {}
            None => continue,
        }
        state.residue += 1;
    }
    state
}
