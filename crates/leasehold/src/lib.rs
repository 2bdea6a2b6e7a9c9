//! Distributed locks on the store you already run.
//!
//! One URL picks the store; the same API, semantics and guarantees hold on all of them.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! let client = leasehold::connect("memory://").await?;
//! let guard = client.mutex("orders/42").acquire().await?; // waits its turn; renewed while held
//! println!("the token {} fences stale writers out", guard.token());
//! assert!(client.mutex("orders/42").try_acquire().await?.is_none());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Choosing a store
//!
//! | URL | store | feature |
//! |---|---|---|
//! | `memory://` | this client's own memory, for tests | always |
//! | `memory://name` | memory that the clients of one process share | always |
//! | `sqlite:`, `sqlite:///path/locks.db` | a file shared by the processes of one machine | `sqlite` |
//! | `redis://host`, `rediss://host`, `redis+unix:///path` | a Redis or Valkey server | `redis` |
//! | `redis+sentinel://host1,host2/service` | the primary that sentinels watch | `redis` |
//! | `redis+cluster://host1,host2` | a cluster | `redis` |
//! | `redlock://host1,host2,host3` | a majority of independent servers | `redis` |
//! | `zookeeper://host1,host2,host3/path` | a ZooKeeper ensemble | `zookeeper` |
//! | `zookeepers://host1,host2,host3/path` | the same, over TLS | `zookeeper-tls` |
//! | `quorum:URL,URL,URL` | a majority of any stores | theirs |
//!
//! A [`Quorum`] of several independent stores is a store too: a claim holds while a majority of them granted it.
//!
//! [`connect()`] takes the URL. [`connect_lazy()`] does too, and connects when the client is first used. [`open()`] gives the store alone, for a [`Client`] with [settings](ClientBuilder) of its own, or with
//! [layers] around the store: a namespace, tracing, metrics. [`Client::info`] says what a store can do; what it cannot do is
//! refused with an error that says so, before anything is sent.
//!
//! # Locking
//!
//! Every primitive hands out something that can be acquired, in three ways:
//!
//! - [`acquire`](Request::acquire) waits its turn,
//! - [`acquire_within`](Request::acquire_within) waits for so long and then answers `None`,
//! - [`try_acquire`](Request::try_acquire) does not wait.
//!
//! What you get is a [`Guard`]. It is renewed in the background until it is [released](Guard::release) or dropped. A dropped guard is
//! released by a background task, which ends with the runtime: finish `main` with `release` or [`Client::close`]. An acquire that is
//! dropped (a timeout, a `select!`) leaves the queue.
//!
//! Locks are fair and not re-entrant. The queue is a place for claims, not for threads: who acquires a mutex twice waits for itself,
//! unless an [`Owner`] does it.
//!
//! # Options
//!
//! One set of [`Options`] for everything that is acquired, given with `with`, or for all of a client as [`ClientBuilder::defaults`].
//!
//! ```
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! # let client = leasehold::connect("memory://").await?;
//! use leasehold::Options;
//! let options = Options::new()
//!     .lease(Duration::from_secs(10)) // how long it outlives a crash; renewed every third of that
//!     .max_hold(Duration::from_secs(600)) // lost after this long, for work that hangs
//!     .label("nightly report"); // what others see
//! let guard = client.mutex("report").with(options).acquire().await?;
//! assert_eq!(client.inspect("report").await?.unwrap().holders[0].label, "nightly report");
//! # guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Loss
//!
//! A lock with a lease can be lost: the store is away for too long, the process is stopped, somebody takes the lock away. A guard knows
//! without the network when it may no longer be believed ([`is_valid`](Guard::is_valid)), and says so: [`lost`](Guard::lost) returns, with
//! the cause, before the lease is over at the store, or as soon as the store says that it was ended. [`run`](Guard::run) stops work at its
//! next await then.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! # let client = leasehold::connect("memory://").await?;
//! use leasehold::{ErrorKind, Loss};
//! let guard = client.mutex("orders/42").acquire().await?;
//! client.evict("orders/42", guard.token()).await?; // an administrator, somewhere
//! assert_eq!(guard.lost().await, Loss::Gone);
//! let stopped = guard.run(async { "never returned" }).await;
//! assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Lost);
//! # Ok(()) }
//! ```
//!
//! # Fencing
//!
//! No lock can stop a process that was paused from waking up after its lease is over and writing all the same. So every grant carries a
//! [token](Guard::token), larger than that of every earlier holder of the key. Give it to whatever you write to, and let that refuse smaller
//! ones: [`FenceColumn`] builds the condition for SQL, [`Gate`] is the same within a process.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! # let client = leasehold::connect("memory://").await?;
//! let gate = leasehold::Gate::new(); // in front of what is protected
//! let first = client.mutex("orders/42").acquire().await?;
//! let old = first.token();
//! first.release().await?;
//! let second = client.mutex("orders/42").acquire().await?;
//! assert!(gate.admits(second.token()));
//! assert!(!gate.admits(old)); // back from a long pause, and too late
//! # second.release().await?;
//! # Ok(()) }
//! ```
//!
//! # The primitives
//!
//! | | |
//! |---|---|
//! | [`Mutex`] | one holder |
//! | [`RwLock`] | many readers or one writer; upgrade and downgrade; a writer that waits holds back later readers |
//! | [`Semaphore`] | N permits, several at a time, each acquisition with its own lease |
//! | [`Latch`] | a count that goes down to zero, and those who wait for that |
//! | [`Election`] | one leader, which publishes a value; everybody may observe |
//! | [`Job`] | work that one process does at a time, for at most so long and not again for at least so long |
//! | [`Multi`] | several of them, on one store or on several, all or nothing |
//!
//! ```
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! # let client = leasehold::connect("memory://").await?;
//! let catalogue = client.rwlock("catalogue").read().acquire().await?;
//! let upload = client.semaphore("uploads", 4).permits(2).acquire().await?;
//!
//! let ready = client.latch("workers ready");
//! ready.set(1).await?;
//! ready.count_down().await?;
//! ready.wait().await?;
//!
//! let leader = client.election("scheduler").campaign("10.0.0.7:8080").await?;
//! assert_eq!(client.election("scheduler").leader().await?.unwrap().token, leader.token());
//!
//! let nightly = client.job("nightly").at_least(Duration::from_secs(60));
//! nightly.run(|_token| async { /* the work */ }).await?;
//! # drop((catalogue, upload, leader));
//! # client.close().await?;
//! # Ok(()) }
//! ```
//!
//! # Putting them together
//!
//! [`Multi`] acquires several locks in one order everywhere, so that nobody waits in a circle. [`Owner`] makes acquiring again what one holds
//! possible. A [`Ticket`] hands a lock to another process, with nobody in between. [`Client::ask`] asks a holder to give a lock back, and
//! [`Guard::asked_to_release`] tells it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! # let client = leasehold::connect("memory://").await?;
//! let both = leasehold::Multi::new().and(client.mutex("account/7")).and(client.mutex("account/3"));
//! let guards = both.acquire().await?;
//! assert_eq!(guards.guards()[0].key().as_str(), "account/3"); // the same order for everybody
//! guards.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Who holds, who waits
//!
//! [`Client::inspect`] looks at one key, [`Client::list`] at all that start with a prefix, [`Client::watch`] follows a key, and
//! [`Client::evict`] takes a lock away. The command `leasehold` does the same from a shell.
//!
//! # Without async code
//!
//! [`blocking`] has the same names. Its leases are renewed by a thread of its own, whatever yours is doing.
//!
//! ```
//! # fn main() -> Result<(), leasehold::Error> {
//! let client = leasehold::blocking::Client::new(leasehold::open("memory://")?)?;
//! let guard = client.mutex("orders/42").acquire()?;
//! guard.release()?;
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! Busy is not an error. An [`Error`] has a [kind](ErrorKind) to match on. The two to tell apart are
//! [`Unavailable`](ErrorKind::Unavailable), nothing was sent, and [`Indeterminate`](ErrorKind::Indeterminate), it may have happened;
//! both were asked again for as long as one [call may take](ClientBuilder::call_timeout), and a release goes on in the background.
//!
//! # Testing
//!
//! `memory://` is a complete store: test against it, not against a mock. To see what your program does when the store is away, put
//! [`layers::Faults`] around one. [`TestClock`] and tokio's paused time make leases end in no time.
//!
//! ```
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, Loss, Memory, Options, layers::Faults};
//! let store = Faults::new(Memory::new());
//! let client = Client::new(store.clone()).await?;
//! let options = Options::new().lease(Duration::from_millis(100));
//! let guard = client.mutex("orders/42").with(options).acquire().await?;
//! store.cut(); // from now on nothing gets through
//! assert_eq!(guard.lost().await, Loss::Expired);
//! # Ok(()) }
//! ```
//!
//! # More
//!
//! What is promised, what is not, and what each store survives is in `docs/safety.md` of the repository; `docs/compare.md` is for those who
//! come from another lock. Everything but [`connect()`], [`connect_lazy()`], [`open()`] and [`redact()`] comes from `leasehold-core`, which stores are written
//! against.

mod connect;
mod name;
mod quorum;
mod redact;

pub use connect::{connect, connect_lazy, open};
pub use leasehold_core::*;
pub use redact::redact;

/// The Redis store.
#[cfg(feature = "redis")]
pub use leasehold_redis as redis;

/// The SQLite store and its settings.
#[cfg(feature = "mysql")]
pub use leasehold_mysql as mysql;
#[cfg(feature = "postgres")]
pub use leasehold_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use leasehold_sqlite as sqlite;
#[cfg(feature = "zookeeper")]
pub use leasehold_zookeeper as zookeeper;

/// Compiles the examples of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
