//! What the judged clusters have in common: servers that trials use one after the other, and a look at what is stored
//! through their JSON gateway.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold_conformance::{
    AtGrant, Fixture, Hook, Killed, Lent, Pool, RawState, kill_one_that_holds, run, victim,
};
use leasehold_core::{Fut, Key, Store};
use leasehold_etcd::Etcd;
use leasehold_servers::{Mode, Proxy};
use serde_json::Value;

/// How long servers may take to answer a look.
const PATIENCE: Duration = Duration::from_secs(60);

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
    /// What they answer to a request from outside.
    fn ask(&self, path: &str, body: &str) -> Option<String>;
    /// Stops a server without warning, and sees to it that it comes back.
    fn restart(&mut self);
    /// What stands between the clients and them.
    fn proxies(&self) -> Vec<&Proxy>;
}

/// Judges the store on these servers.
pub(crate) fn judge<P: Place>(name: &'static str) -> ExitCode {
    let pool = Pool::default();
    let part = victim(|url| Ok(Arc::new(Etcd::from_url(url)?) as _));
    part.unwrap_or_else(|| run(name, move || Ok(Judged::new(pool.lend(P::start)))))
}

/// Servers that one trial has for itself.
#[derive(Debug)]
struct Judged<P> {
    place: Lent<P>,
    url: String,
}

impl<P: Place> Judged<P> {
    fn new(place: Lent<P>) -> Self {
        place.with(|place| {
            place.proxies().into_iter().for_each(|proxy| proxy.set(Mode::Pass));
            all(place, "deleterange", "");
        });
        // A call that fails is told to the suite as it is: a busy machine must not be the reason.
        let url = format!("{}?timeout=5s&connect_timeout=5s", place.with(|place| place.url()));
        Self { place, url }
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.place.with(|place| place.proxies().into_iter().for_each(|proxy| proxy.set(mode)));
        Hook::Does(Box::pin(async { Ok(()) }))
    }
}

/// Does something with all keys that start with this, and waits for the answer.
fn all(place: &impl Place, what: &str, prefix: &str) -> Value {
    all_at(place, what, prefix, 0)
}

/// The same as of a revision; 0 for now.
fn all_at(place: &impl Place, what: &str, prefix: &str, revision: u64) -> Value {
    // From the prefix, or the smallest key, up to the next one of its length, or without an end.
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    let [key, end] =
        [prefix.as_bytes().to_vec(), end].map(|bound| if bound.is_empty() { vec![0] } else { bound });
    let mut range = serde_json::json!({ "key": STANDARD.encode(key), "range_end": STANDARD.encode(end) });
    if revision > 0 {
        range["revision"] = revision.into();
    }
    let range = range.to_string();
    let limit = Instant::now() + PATIENCE;
    loop {
        let said = place.ask(&format!("/v3/kv/{what}"), &range);
        if let Some(answer) = said.and_then(|said| serde_json::from_str(&said).ok()) {
            return answer;
        }
        assert!(Instant::now() < limit, "no server answers");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl<P: Place> Fixture for Judged<P> {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(Etcd::from_url(&self.url)?) as _) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move { Ok(look(&self.place.with(|place| all(place, "range", "leasehold/")), key)) })
    }

    /// etcd keeps all revisions until somebody compacts them, and a token is a revision with room for 128 grants.
    fn at_grant<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, Option<AtGrant>> {
        Box::pin(async move {
            let said = self.place.with(|place| all_at(place, "range", &lock(key), token / 128));
            let limit = text_of(&said, &format!("{}limit", lock(key)));
            let limit = limit.and_then(|text| serde_json::from_str::<Value>(&text).ok());
            let limit = limit.and_then(|value| value["effective"].as_u64());
            Ok(Some(AtGrant { units: look(&said, key).units, limit }))
        })
    }

    fn lease(&self) -> Duration {
        P::LEASE
    }

    fn crowd(&self) -> usize {
        P::CROWD
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
        self.place.with(Place::restart);
        Hook::Does(Box::pin(async { Ok(()) }))
    }
}

/// What the names of all keys of a lock start with.
fn lock(key: &Key) -> String {
    format!("leasehold/lock/{}/", key.as_str().replace('%', "%25").replace('/', "%2F"))
}

/// A part of an entry.
fn text(entry: &Value, part: &str) -> String {
    let bytes = STANDARD.decode(entry[part].as_str().unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The value of the key of this name.
fn text_of(said: &Value, name: &str) -> Option<String> {
    let mut entries = said["kvs"].as_array().into_iter().flatten();
    entries.find(|entry| text(entry, "key") == name).map(|entry| text(entry, "value"))
}

/// Counts the keys of one lock. Every refusal is counted, for a trial has its servers for itself.
fn look(said: &Value, key: &Key) -> RawState {
    let lock = lock(key);
    let mut state = RawState::default();
    for entry in said["kvs"].as_array().into_iter().flatten() {
        let name = text(entry, "key");
        let value: Value = serde_json::from_str(&text(entry, "value")).unwrap_or_default();
        let held = value["claims"][0]["held"].as_u64().unwrap_or(0);
        match name.strip_prefix(&lock).and_then(|rest| rest.split('/').next()) {
            Some("hold") => (state.holders, state.units) = (state.holders + 1, state.units + held),
            Some("more") => {
                (state.holders, state.units, state.waiters) =
                    (state.holders + 1, state.units + held, state.waiters + 1);
            }
            Some("wait") => state.waiters += 1,
            Some(_) => {}
            None if name.starts_with("leasehold/refused/") => {}
            None => continue,
        }
        state.residue += 1;
    }
    state
}
