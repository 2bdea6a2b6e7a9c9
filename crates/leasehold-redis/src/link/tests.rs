//! The connections against real servers, well and ill.

mod cluster;
mod crowd;
mod local;
mod replicas;
mod sentinel;
mod single;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{ErrorKind, Key, Promotion, Result, Wake, Wakes};
use redis::Value;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Link;
use crate::script::{Ack, Call, Script};
use crate::secret::Secret;
use crate::url::Target;

/// The longest that anything here waits for what must happen: an election between sentinels may need a second
/// and a third round on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The time of one call, in these tests: enough for a call that is answered, on a busy machine.
const CALL: Duration = Duration::from_secs(1);

/// Counts under a key, and answers the new count.
static COUNT: Script = Script::new("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])");

fn link(url: &str) -> Link {
    let sign = if url.contains('?') { '&' } else { '?' };
    Link::new(
        Target::parse(&format!("{url}{sign}timeout={}ms&connect_timeout=3s", CALL.as_millis())).unwrap(),
        Secret::random().unwrap(),
    )
}

fn count_on(key: &str) -> Call {
    let slot = crate::names::slot(key.as_bytes());
    Call {
        script: &COUNT,
        slot,
        keys: vec![key.into()],
        args: vec!["1".into()],
        ack: Ack::Needed,
        joins: false,
        members: Vec::new(),
    }
}

async fn count(link: &Link) -> Result<i64> {
    let value = link.call(count_on("count")).await?;
    let Value::Int(n) = value else { panic!("{value:?} is no number") };
    Ok(n)
}

/// Counts until it works, as the keeper does.
async fn count_soon(link: &Link) -> i64 {
    let counting = async {
        loop {
            match count(link).await {
                Ok(n) => return n,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, counting).await.expect("the server is back")
}

async fn kind_of_failure(link: &Link) -> ErrorKind {
    count(link).await.unwrap_err().kind()
}

/// Looks again until it is so, and lets the connections work meanwhile.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A client's ear that remembers.
#[derive(Debug, Default)]
struct Ear {
    heard: Mutex<Vec<String>>,
    something: Notify,
}

impl Ear {
    fn note(&self, what: impl Into<String>) {
        self.heard.lock().unwrap().push(what.into());
        self.something.notify_one();
    }

    /// Waits until it has heard this, and forgets everything.
    async fn hears(&self, what: &str) {
        let hearing = async {
            while !self.heard.lock().unwrap().iter().any(|heard| heard == what) {
                self.something.notified().await;
            }
        };
        timeout(SOON, hearing).await.unwrap_or_else(|_| panic!("never heard {what}"));
        self.heard.lock().unwrap().clear();
    }
}

impl Ear {
    /// Waits until it has heard as much, and says whether it was this.
    async fn hears_only(&self, all: &[&str]) {
        let hearing = async {
            while self.heard.lock().unwrap().len() < all.len() {
                self.something.notified().await;
            }
        };
        timeout(SOON, hearing).await.unwrap_or_else(|_| panic!("never heard {all:?}"));
        assert_eq!(*self.heard.lock().unwrap(), all);
    }
}

impl Wake for Ear {
    fn promoted(&self, _: &Promotion) {}

    fn look(&self, key: &Key) {
        self.note(key.as_str());
    }

    fn look_all(&self) {
        self.note("all");
    }

    fn is_gone(&self) -> bool {
        false
    }
}

/// Opens an inbox called `inbox`, whose messages are names of keys.
async fn open(link: &Link) -> Result<Arc<Ear>> {
    let ear = Arc::new(Ear::default());
    let hear = |message: &[u8], _: &Secret, wakes: &Wakes| {
        wakes.look(&Key::new(str::from_utf8(message).unwrap()).unwrap());
    };
    link.open(b"inbox".to_vec(), ear.clone(), hear).await?;
    Ok(ear)
}
