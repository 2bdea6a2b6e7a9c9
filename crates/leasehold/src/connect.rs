//! From a URL to a store: one table, one line per store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{Client, Error, ErrorKind, Memory, Result, Store};

use crate::name::name_of;
use crate::quorum::open_quorum;
use crate::redact::{redact, scrub};

type Open = fn(&str) -> Result<Arc<dyn Store>>;

/// A store that URLs can name.
struct Scheme {
    /// Feature and crate suffix in one.
    name: &'static str,
    /// How its URLs start; the first is the usual one.
    starts: &'static [&'static str],
    /// `None` when its feature is off.
    open: Option<Open>,
}

/// `Some` when the feature is on.
macro_rules! with_feature {
    ($feature:tt, $open:expr) => {{
        #[cfg(feature = $feature)]
        let open: Option<Open> = Some($open);
        #[cfg(not(feature = $feature))]
        let open: Option<Open> = None;
        open
    }};
}

const SCHEMES: &[Scheme] = &[
    Scheme { name: "memory", starts: &["memory"], open: Some(memory) },
    Scheme {
        name: "sqlite",
        starts: &["sqlite"],
        open: with_feature!("sqlite", |url| Ok(Arc::new(leasehold_sqlite::Sqlite::from_url(url)?))),
    },
    Scheme {
        name: "redis",
        starts: &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
        ],
        open: with_feature!("redis", |url| Ok(Arc::new(leasehold_redis::Redis::from_url(url)?))),
    },
    Scheme {
        name: "redis",
        starts: &["redlock", "redlocks"],
        open: with_feature!("redis", |url| Ok(Arc::new(leasehold_redis::redlock(url)?))),
    },
    Scheme {
        name: "postgres",
        starts: &["postgres", "postgresql"],
        open: with_feature!("postgres", |url| Ok(Arc::new(leasehold_postgres::Postgres::from_url(url)?))),
    },
    Scheme {
        name: "mysql",
        starts: &["mysql", "mariadb"],
        open: with_feature!("mysql", |url| Ok(Arc::new(leasehold_mysql::Mysql::from_url(url)?))),
    },
    Scheme {
        name: "zookeeper",
        starts: &["zookeeper", "zookeepers"],
        open: with_feature!("zookeeper", |url| Ok(Arc::new(leasehold_zookeeper::ZooKeeper::from_url(url)?))),
    },
    Scheme {
        name: "consul",
        starts: &["consul", "consuls"],
        open: with_feature!("consul", |url| Ok(Arc::new(leasehold_consul::Consul::from_url(url)?))),
    },
    Scheme { name: "quorum", starts: &["quorum"], open: Some(|url| open_quorum(url, open)) },
    Scheme {
        name: "etcd",
        starts: &["etcd", "etcds"],
        open: with_feature!("etcd", |url| Ok(Arc::new(leasehold_etcd::Etcd::from_url(url)?))),
    },
    Scheme {
        name: "file",
        starts: &["file"],
        open: with_feature!("file", |url| Ok(Arc::new(leasehold_file::file(url)?))),
    },
    Scheme {
        name: "memcached",
        starts: &["memcached"],
        open: with_feature!("memcached", |url| Ok(Arc::new(leasehold_memcached::memcached(url)?))),
    },
];

/// Connects to the store that the URL names, and checks the settings that its promises rest on.
///
/// Waits for up to 5 s while servers of the store answer, but none can serve, as during a failover. A server that refuses
/// the connection is reported immediately. [`connect_lazy`] does not need the store at all yet, and [`open()`] with
/// [`ClientBuilder::connect_timeout`](leasehold_core::ClientBuilder::connect_timeout) waits for another time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// let one = leasehold::connect("memory://tests").await?;
/// let two = leasehold::connect("memory://tests").await?;
/// let guard = one.mutex("orders/42").acquire().await?;
/// assert!(two.mutex("orders/42").try_acquire().await?.is_none()); // the same memory
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`open()`], and when the store cannot be reached or refuses us. Passwords are never part of a message.
pub async fn connect(url: &str) -> Result<Client> {
    let connected = Client::builder().name(name_of(url)).connect(open(url)?).await;
    connected.map_err(|error| without_secrets(error, url))
}

/// A client of the store that the URL names, which connects when it is first used. The store need not be up yet.
///
/// The first operation connects and checks the store's settings before it asks for anything. If that fails, the operation
/// fails with the error that [`connect`] would have returned, and the next operation tries again. Until then
/// [`Client::info`] is what the store declares, not what its settings allow.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect_lazy("memory://tests")?; // sends nothing
/// let guard = client.mutex("orders/42").acquire().await?; // connects
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`open()`], and `Invalid` outside of a tokio runtime.
pub fn connect_lazy(url: &str) -> Result<Client> {
    Client::builder().connect_lazy(open(url)?)
}

/// The store that the URL names, for a client with settings of its own. Sends nothing yet.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::{Client, layers::Namespace};
/// let store = Namespace::new(leasehold::open("memory://")?, "billing")?;
/// let client = Client::builder().call_timeout(std::time::Duration::from_secs(1)).connect(store).await?;
/// client.mutex("orders/42").acquire().await?.release().await?; // billing/orders/42 to the store
/// # Ok(()) }
/// ```
///
/// # Errors
/// `Invalid` when the URL names no store, `Unsupported` when its feature is not compiled in.
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    let Some((name, _)) = url.split_once(':') else {
        let shown = redact(url);
        let message = format!(
            "\"{}\" has no scheme: write it like sqlite:///path/locks.db or redis://host",
            shown.escape_debug()
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    };
    let is_named = |start: &&str| start.eq_ignore_ascii_case(name);
    let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.starts.iter().any(is_named)) else {
        return Err(unknown(name));
    };
    let Some(open) = scheme.open else {
        let message = format!(
            "this build has no {name} store: enable the feature \"{name}\" of leasehold",
            name = scheme.name
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    open(url).map_err(|error| without_secrets(error, url))
}

/// The same error, unless its text gives a password of the URL away.
fn without_secrets(error: Error, url: &str) -> Error {
    let text = error.to_string();
    let scrubbed = scrub(&text, url);
    if scrubbed == text {
        return error;
    }
    Error::new(error.kind(), scrubbed).transient_if(error.is_transient())
}

fn unknown(name: &str) -> Error {
    let known = || SCHEMES.iter().flat_map(|scheme| scheme.starts).copied();
    let near = known().map(|start| (distance(name, start), start)).min();
    let hint = match near {
        Some((distance, near)) if distance <= 2 => format!("did you mean {near}: ? "),
        _ => String::new(),
    };
    let known = known().collect::<Vec<_>>().join(", ");
    let shown = name.escape_debug();
    Error::new(ErrorKind::Invalid, format!("no store is called \"{shown}\": {hint}known are {known}"))
}

/// How many letters must be added, dropped or changed to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    // A scheme is short: nobody meant one by the first kilobyte of something else.
    for (i, a) in from.chars().take(32).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let change = diagonal + usize::from(!a.eq_ignore_ascii_case(b));
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// `memory://` is the caller's alone; `memory://name` is shared by the process and stays as long as it.
fn memory(url: &str) -> Result<Arc<dyn Store>> {
    static SHARED: Mutex<Option<HashMap<String, Memory>>> = Mutex::new(None);
    let rest = url.split_once(':').map_or("", |(_, rest)| rest);
    let name = rest.strip_prefix("//").unwrap_or(rest);
    if name.is_empty() {
        return Ok(Arc::new(Memory::new()));
    }
    if let Some(odd) = name.chars().find(|c| matches!(c, '/' | '?' | '#' | '@')) {
        let message =
            format!("a memory store has nothing but a name, and '{odd}' is none of it: memory://name");
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Arc::new(shared.get_or_insert_default().entry(name.to_owned()).or_default().clone()))
}

#[cfg(test)]
mod tests {
    use leasehold_core::Multi;

    use super::*;

    fn refusal(url: &str) -> (ErrorKind, String) {
        let error = open(url).unwrap_err();
        (error.kind(), error.to_string())
    }

    #[test]
    fn a_near_miss_is_suggested() {
        let (kind, message) = refusal("sqlte:///locks.db");
        assert_eq!(kind, ErrorKind::Invalid);
        let start = "no store is called \"sqlte\": did you mean sqlite: ? known are memory, ";
        assert!(message.starts_with(start), "{message}");
    }

    #[test]
    fn an_unknown_scheme_lists_the_known_ones() {
        let (kind, message) = refusal("gopher://x");
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(message.starts_with("no store is called \"gopher\": known are "), "{message}");
        for start in SCHEMES.iter().flat_map(|scheme| scheme.starts) {
            assert!(message.contains(start), "{start} in {message}");
        }
    }

    #[test]
    fn a_url_without_a_scheme_says_so() {
        let (kind, message) = refusal("locks.db");
        assert_eq!(kind, ErrorKind::Invalid);
        assert_eq!(
            message,
            "\"locks.db\" has no scheme: write it like sqlite:///path/locks.db or redis://host"
        );
    }

    #[cfg(not(feature = "sqlite"))]
    #[test]
    fn a_store_that_is_not_compiled_in_names_its_feature() {
        let (kind, message) = refusal("sqlite:");
        assert_eq!(kind, ErrorKind::Unsupported);
        assert_eq!(message, "this build has no sqlite store: enable the feature \"sqlite\" of leasehold");
    }

    #[test]
    fn a_password_is_in_no_message() {
        for url in [
            "gopher://u:hunter2@h",
            "redis://u:hunter2@h?x=1",
            "redlock://u:hunter2@h",
            "postgres://u:hunter2@h/d?x=1",
            "mysql://u:hunter2@h/d?x=1",
            "quorum:redis://u:hunter2@h,redis://u:hunter2@h,memory://c",
            "memory://u:hunter2@h",
            "u:hunter2@h",
            "sqlite://u:hunter2@h/x?y=1",
        ] {
            assert!(!refusal(url).1.contains("hunter2"), "{url}");
        }
    }

    #[tokio::test]
    async fn a_nameless_memory_is_not_shared() {
        let (one, two) = (connect("memory://").await.unwrap(), connect("memory:").await.unwrap());
        let guard = one.mutex("k").acquire().await.unwrap();
        assert!(two.mutex("k").try_acquire().await.unwrap().is_some());
        guard.release().await.unwrap();
    }

    #[test]
    fn a_memory_url_has_nothing_but_a_name() {
        assert_eq!(refusal("memory://a?b").0, ErrorKind::Invalid);
    }

    #[tokio::test]
    async fn multi_lock_spans_two_urls_of_one_kind() {
        let (a, b) = (connect("memory://multi-a").await.unwrap(), connect("memory://multi-b").await.unwrap());
        let order = async |first: &Client, second: &Client| {
            let multi = Multi::new().and(first.mutex("k")).and(second.mutex("k"));
            let held = multi.acquire().await.unwrap();
            let tokens: Vec<_> = held.guards().iter().map(|guard| guard.token()).collect();
            let on_a = a.inspect("k").await.unwrap().unwrap().holders[0].token;
            let on_b = b.inspect("k").await.unwrap().unwrap().holders[0].token;
            held.release().await.unwrap();
            assert_eq!(tokens, [on_a, on_b], "not in the order of the URLs");
        };
        // Tokens of two stores that count alike tell nothing apart.
        b.mutex("k").acquire().await.unwrap().release().await.unwrap();
        order(&a, &b).await;
        order(&b, &a).await;
    }

    #[tokio::test]
    async fn multi_lock_refuses_one_url_named_twice() {
        let (one, two) = (connect("memory://twice").await.unwrap(), connect("memory://twice").await.unwrap());
        let refused = Multi::new().and(one.mutex("k")).and(two.mutex("k")).acquire().await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        let (one, two) = (connect("memory://").await.unwrap(), connect("memory://").await.unwrap());
        assert!(Multi::new().and(one.mutex("k")).and(two.mutex("k")).acquire().await.is_ok());
    }

    #[test]
    fn distance_counts_letters() {
        assert_eq!(distance("sqlite", "sqlite"), 0);
        assert_eq!(distance("sqlite3", "sqlite"), 1);
        assert_eq!(distance("MEMORI", "memory"), 1);
        assert_eq!(distance("", "memory"), 6);
    }
}
