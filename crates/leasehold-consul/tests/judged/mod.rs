//! What the judged clusters have in common: servers that trials use one after the other, and a look at what is stored
//! that has nothing of the store in it but its format.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold_conformance::{
    Fixture, Hook, Killed, Lent, Pool, RawState, kill_one_that_holds, run, run_groups, victim,
};
use leasehold_consul::Consul;
use leasehold_core::{Fut, Key, Result, Store};
use leasehold_servers::{Mode, Proxy};
use serde_json::Value;

/// Short, but long against the few requests of a renewal on a busy machine.
const LEASE: Duration = Duration::from_millis(1500);

/// Some servers.
pub(crate) trait Place: Debug + Send + Sync + 'static {
    /// Starts them. They are used for many trials.
    fn start() -> Self;
    /// How clients reach them.
    fn url(&self) -> String;
    /// What they answer to a request from outside.
    fn ask(&self, method: &str, path: &str) -> (u16, String);
    /// Stops a server without warning, and sees to it that the others go on or that it comes back.
    fn restart(&mut self);
    /// What stands between the clients and them.
    fn proxies(&self) -> &[Proxy];
}

/// Judges the store on these servers: by all cases, or by those of some groups.
pub(crate) fn judge<P: Place>(name: &'static str, groups: Option<&[&str]>) -> ExitCode {
    let pool = Pool::default();
    let make = move || Ok(Judged::new(pool.lend(P::start)));
    victim(store).unwrap_or_else(|| match groups {
        None => run(name, make),
        Some(groups) => run_groups(name, groups, make),
    })
}

fn store(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Consul::from_url(url)?))
}

/// Servers that one trial has for itself.
#[derive(Debug)]
struct Judged<P> {
    place: Lent<P>,
    url: String,
}

impl<P: Place> Judged<P> {
    fn new(place: Lent<P>) -> Self {
        let url = place.with(|place| {
            place.proxies().iter().for_each(|proxy| proxy.set(Mode::Pass));
            assert_eq!(place.ask("DELETE", "/v1/kv/leasehold?recurse").0, 200, "the servers take requests");
            place.url()
        });
        Self { place, url }
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.place.with(|place| place.proxies().iter().for_each(|proxy| proxy.set(mode)));
        Hook::Does(Box::pin(async { Ok(()) }))
    }

    /// Every record, read by hand.
    fn records(&self) -> Vec<Value> {
        let path = "/v1/kv/leasehold/locks/?recurse&consistent";
        let (status, all) = self.place.with(|place| place.ask("GET", path));
        if status == 404 {
            return Vec::new();
        }
        let entries: Vec<Value> = serde_json::from_str(&all).expect("a list of entries");
        let read = |entry: &Value| {
            let bytes = STANDARD.decode(entry["Value"].as_str().unwrap_or_default()).unwrap_or_default();
            serde_json::from_slice(&bytes).unwrap_or(Value::Null)
        };
        entries.iter().map(read).collect()
    }
}

impl<P: Place> Fixture for Judged<P> {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { store(&self.url) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            Ok(RawState::of_records(&self.records(), key, now))
        })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn crowd(&self) -> usize {
        100
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
