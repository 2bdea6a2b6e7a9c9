//! A cluster's servers, and which slots they have: kept up to date by asking them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Result;
use redis::{Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::dial::Dialer;
use super::find::{Finder, text};
use super::map::Map;
use super::node::{Node, pause};
use super::vote;
use crate::fault::Unreachable;
use crate::url::Address;

/// Who has which slots: first, last, server.
type Ranges = Vec<(u16, u16, Address)>;

/// The servers are asked at most this often.
const BETWEEN: Duration = Duration::from_millis(100);

/// The servers of a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    seeds: Vec<Address>,
    dialer: Dialer,
    /// Where connections live, whoever asks for one.
    runtime: Handle,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    map: watch::Sender<Arc<Map>>,
    outdated: Notify,
}

impl Cluster {
    /// Asks the seeds for the first map.
    pub(super) async fn start(
        seeds: Vec<Address>,
        dialer: Dialer,
    ) -> Result<(Arc<Self>, watch::Receiver<Arc<Map>>)> {
        let empty = Map::cluster(&[], |_| unreachable!("there are no ranges"));
        let (map, seen) = watch::channel(Arc::new(empty));
        let (runtime, nodes, outdated) = (Handle::current(), Mutex::default(), Notify::new());
        let cluster = Arc::new(Self { seeds, dialer, runtime, nodes, map, outdated });
        cluster.ask().await.map_err(|why| why.to_error())?;
        Ok((cluster, seen))
    }

    /// Asks again whenever somebody says that the map is outdated, for ever.
    pub(super) async fn keep_up(self: Arc<Self>) {
        loop {
            self.outdated.notified().await;
            let mut failed = 0;
            while let Err(why) = self.ask().await {
                tracing::debug!(?why, "cannot learn who has which slots");
                failed += 1;
                sleep(pause(failed)).await;
            }
            sleep(BETWEEN).await;
        }
    }

    /// Have the servers asked soon.
    pub(super) fn refresh(&self) {
        self.outdated.notify_one();
    }

    /// The server at this address.
    pub(super) fn node(&self, address: &Address) -> Arc<Node> {
        let start = || {
            let _on = self.runtime.enter();
            Node::start(Finder::Fixed(address.clone()), self.dialer.clone())
        };
        self.lock().entry(address.clone()).or_insert_with(start).clone()
    }

    /// A server said that a slot is elsewhere.
    pub(super) fn moved(&self, slot: u16, to: &Address) {
        let node = self.node(to);
        self.map.send_modify(|map| Arc::make_mut(map).give(slot..=slot, to, || node));
        self.refresh();
    }

    /// Asks the servers who has which slots, and believes most of them.
    async fn ask(&self) -> Result<(), Unreachable> {
        let mut asked: HashSet<Address> = self.map.borrow().nodes().iter().map(|(a, _)| a.clone()).collect();
        if !asked.iter().any(|address| self.node(address).wire().is_some()) {
            asked.extend(self.seeds.iter().cloned());
        }
        let answers = asked.iter().map(|address| self.ask_one(address));
        let ranges = vote::most(answers, asked.len()).await?;
        let map = Map::cluster(&ranges, |address| self.node(address));
        let known: HashSet<_> = map.nodes().iter().map(|(address, _)| address.clone()).collect();
        self.map.send_if_modified(|old| {
            *old = Arc::new(map);
            true
        });
        // Connections to servers that have no slots any more are closed.
        self.lock().retain(|address, _| known.contains(address));
        Ok(())
    }

    async fn ask_one(&self, address: &Address) -> Result<Ranges, Unreachable> {
        let target = self.dialer.target();
        let node = self.node(address);
        let wire = node.first_attempt(Instant::now() + target.connect_timeout).await?;
        let mut question = cmd("CLUSTER");
        question.arg("SLOTS");
        let answer = wire.send(&question, Instant::now() + target.timeout).await;
        match answer.map_err(|silence| Unreachable::from(silence.into_error()))? {
            Value::Array(parts) => {
                let mut ranges: Ranges = parts.iter().filter_map(|part| range(part, address)).collect();
                ranges.sort();
                if ranges.is_empty() {
                    let message = format!("{address} knows no server with slots");
                    return Err(Unreachable::new(message).during_failover());
                }
                Ok(ranges)
            }
            Value::ServerError(error) => Err(Unreachable::refused(&error, address)),
            _ => Err(Unreachable::new(format!("{address} answered something unknown to CLUSTER SLOTS"))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Arc<Node>>> {
        // Nothing below the lock panics half-way through a change.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line of `CLUSTER SLOTS`: first slot, last slot, primary, replicas. A primary without a host is on the host
/// that was asked.
fn range(part: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
    let Value::Array(part) = part else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = part.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = text(host).filter(|host| !host.is_empty() && host != "?").or_else(|| match asked {
        Address::Tcp(host, _) => Some(host.clone()),
        Address::Unix(_) => None,
    })?;
    let address = Address::Tcp(host, u16::try_from(*port).ok()?);
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, address))
}
