//! What the judged clusters have in common: servers that trials use one after the other, and a look at what is stored
//! that has nothing of the store in it but its format.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use leasehold_conformance::{Fixture, Hook, RawState, kill_one_that_holds, run, run_groups, victim};
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
    let pool: Arc<Pool<P>> = Arc::default();
    let make = move || Ok(Judged::new(pool.clone()));
    victim(store).unwrap_or_else(|| match groups {
        None => run(name, make),
        Some(groups) => run_groups(name, groups, make),
    })
}

fn store(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Consul::from_url(url)?))
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
        let place = idle.unwrap_or_else(P::start);
        place.proxies().iter().for_each(|proxy| proxy.set(Mode::Pass));
        assert_eq!(place.ask("DELETE", "/v1/kv/leasehold?recurse").0, 200, "the servers take requests");
        Self { url: place.url(), place: Mutex::new(Some(place)), pool }
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.with(|place| place.proxies().iter().for_each(|proxy| proxy.set(mode)));
        Hook::Does(Box::pin(async { Ok(()) }))
    }

    fn with<T>(&self, body: impl FnOnce(&mut P) -> T) -> T {
        body(locked(&self.place).as_mut().expect("it is given back when the trial ends"))
    }

    /// Every record, read by hand.
    fn records(&self) -> Vec<Value> {
        let (status, all) = self.with(|place| place.ask("GET", "/v1/kv/leasehold/locks/?keys"));
        if status == 404 {
            return Vec::new();
        }
        let names: Vec<String> = serde_json::from_str(&all).expect("a list of keys");
        let read = |name: &String| {
            let (status, text) =
                self.with(|place| place.ask("GET", &format!("/v1/kv/{name}?raw&consistent")));
            (status == 200).then(|| serde_json::from_str(&text).unwrap_or(Value::Null))
        };
        names.iter().filter_map(read).collect()
    }
}

impl<P: Place> Drop for Judged<P> {
    fn drop(&mut self) {
        locked(&self.pool).extend(locked(&self.place).take());
    }
}

/// Whether anything in a record matters to anybody.
fn is_in_use(record: &Value) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let refused = record["refused"].as_object().into_iter().flat_map(|refused| refused.values());
    let lasts = |until: &Value| until.as_u64().is_some_and(|until| u128::from(until) > now);
    let claims = record["claims"].as_array();
    claims.is_some_and(|claims| !claims.is_empty())
        || record["effective"].is_u64()
        || refused.into_iter().any(lasts)
}

impl<P: Place> Fixture for Judged<P> {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { store(&self.url) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let all = self.records();
            let here = all.iter().filter(|record| record["key"] == key.as_str());
            let claims: Vec<_> =
                here.flat_map(|record| record["claims"].as_array().cloned()).flatten().collect();
            let held = |claim: &Value| claim["held"].as_u64().unwrap_or(0);
            let wanted = |claim: &Value| claim["wanted"].as_u64().unwrap_or(0);
            Ok(RawState {
                holders: claims.iter().filter(|claim| held(claim) > 0).count(),
                units: claims.iter().map(held).sum(),
                waiters: claims.iter().filter(|claim| wanted(claim) > held(claim)).count(),
                residue: all.iter().filter(|record| is_in_use(record)).count(),
            })
        })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn crowd(&self) -> usize {
        100
    }

    fn kill_holder<'a>(&'a self, key: &'a Key) -> Hook<'a> {
        Hook::Does(Box::pin(kill_one_that_holds(&self.url, key, LEASE)))
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
