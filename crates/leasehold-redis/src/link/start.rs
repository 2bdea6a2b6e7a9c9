//! Connections that were made, and the tasks that keep them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Check, Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::cluster::Cluster;
use super::crowd::Crowd;
use super::dial::Dialer;
use super::find::Finder;
use super::map::Map;
use super::node::Node;
use super::way::Way;
use super::wire::Wire;
use crate::fault::Unreachable;
use crate::inbox::{self, Inboxes};
use crate::script::Ack;
use crate::settings;
use crate::url::{Address, Target, Topology};

/// How often somebody who waits for a server looks whether another one took its place.
const LOOK: Duration = Duration::from_millis(100);

/// The connections; dropped, they are closed.
#[derive(Debug)]
pub(super) struct Started {
    map: watch::Receiver<Arc<Map>>,
    cluster: Option<Arc<Cluster>>,
    /// Where requests may share a call: keys may be anything, and nobody waits for replicas.
    crowd: Option<Arc<Crowd>>,
    /// Keeps the map of a single server alive.
    _fixed: Option<watch::Sender<Arc<Map>>>,
    tasks: Vec<JoinHandle<()>>,
    /// What was found in the servers' settings.
    checks: Vec<Check>,
}

impl Started {
    /// Connects. Fails when the first attempt fails: what is wrong with a URL should be said at once.
    pub(super) async fn new(target: &Arc<Target>, inboxes: &Arc<Inboxes>) -> Result<Self> {
        let dialer = Dialer::new(target.clone(), inboxes.clone());
        let (finder, name) = match &target.topology {
            Topology::Cluster { seeds } => {
                let (cluster, map) = Cluster::start(seeds.clone(), dialer).await?;
                let tasks = vec![tokio::spawn(cluster.clone().keep_up())];
                let (cluster, checks) = (Some(cluster), Vec::new());
                let started = Self { map, cluster, crowd: None, _fixed: None, tasks, checks };
                // Some of its servers have answered.
                return started.listening(inboxes, target).await.map_err(during_failover);
            }
            Topology::Single(address) => (Finder::Fixed(address.clone()), address.clone()),
            Topology::Sentinel { sentinels, service, login } => {
                let (sentinels, service, login) = (sentinels.clone(), service.clone(), login.clone());
                // The name of the service stands for whichever server is its primary.
                let name = Address::Tcp(service.clone(), 0);
                (Finder::Sentinel { sentinels, service, login }, name)
            }
        };
        // Sentinels are asked before the server is.
        let until = Instant::now() + target.connect_timeout * 3;
        let node = Node::start(finder, dialer);
        node.first_attempt(until).await.map_err(|why| why.to_error())?;
        if target.min_replicas > 0 {
            // The first grant should not have to wait for it.
            node.writer().node().first_attempt(until).await.map_err(|why| why.to_error())?;
        }
        let crowd = (target.min_replicas == 0).then(|| Crowd::new(node.clone()));
        let (sender, map) = watch::channel(Arc::new(Map::single(name, node)));
        let (tasks, checks) = (Vec::new(), Vec::new());
        let started = Self { map, cluster: None, crowd, _fixed: Some(sender), tasks, checks };
        started.listening(inboxes, target).await
    }

    /// Learns what must be known of the servers, and starts what keeps that up to date.
    async fn listening(mut self, inboxes: &Arc<Inboxes>, target: &Target) -> Result<Self> {
        let (map, secret) = (self.map(), inboxes.secret());
        let until = Instant::now() + target.timeout.max(target.connect_timeout);
        // Together they are one round trip.
        let settings = map.nodes().iter().map(|(_, node)| async {
            match node.first_attempt(until).await.map_err(|why| why.to_error()) {
                Ok(wire) => Ok(settings::check(&wire, target.min_replicas, until).await),
                // One server of a cluster is enough to refuse all of them.
                Err(error) if error.kind() == ErrorKind::Invalid => Err(error),
                Err(_) => Ok(None),
            }
        });
        let (learned, checks) = tokio::join!(secret.learn(&map, until), join_all(settings));
        learned?;
        self.checks = settings::worst(checks.into_iter().collect::<Result<_>>()?);
        if self.checks.is_empty() {
            let message = "no answer in time about the server's settings: check that it can be reached";
            return Err(Unreachable::new(message).to_error());
        }
        self.tasks.push(tokio::spawn(secret.clone().keep_up(self.map.clone(), target.timeout)));
        self.tasks.push(tokio::spawn(inbox::listen(inboxes.clone(), self.map.clone(), target.timeout)));
        Ok(self)
    }

    pub(super) fn checks(&self) -> &[Check] {
        &self.checks
    }

    pub(super) fn crowd(&self) -> Option<&Arc<Crowd>> {
        self.crowd.as_ref()
    }

    pub(super) fn map(&self) -> Arc<Map> {
        self.map.borrow().clone()
    }

    /// The way to the server that has the slot, if it is connected.
    pub(super) fn route_now(&self, slot: u16, ack: Ack) -> Option<Way> {
        self.map.borrow().owner(slot).and_then(|node| Way::now(node, ack))
    }

    /// The way to the server that has the slot, as soon as there is one.
    pub(super) async fn route(&self, slot: u16, ack: Ack, until: Instant) -> Result<Way> {
        loop {
            self.look_around();
            let node = self.map.borrow().owner(slot).cloned();
            let wait = if self.cluster.is_some() { until.min(Instant::now() + LOOK) } else { until };
            let error = match node {
                Some(node) => match Way::to(&node, ack, wait).await {
                    Ok(way) => return Ok(way),
                    // There is nobody else to wait for.
                    Err(error) if self.cluster.is_none() => return Err(error),
                    Err(error) => during_failover(error),
                },
                None => {
                    let message = "no server of the cluster has this key's slot: mend the cluster";
                    Unreachable::new(message).during_failover().to_error()
                }
            };
            if Instant::now() >= until || !error.is_retryable() {
                return Err(error);
            }
            sleep_until(wait).await;
        }
    }

    /// The server at this address, wherever the map says that slots are.
    pub(super) fn at(&self, address: &Address) -> Arc<Node> {
        match &self.cluster {
            Some(cluster) => cluster.node(address),
            None => self.map.borrow().nodes()[0].1.clone(),
        }
    }

    /// The slot is elsewhere.
    pub(super) fn moved(&self, slot: u16, to: &Address) {
        if let Some(cluster) = &self.cluster {
            cluster.moved(slot, to);
        }
    }

    /// A server did not answer: perhaps another one took its place.
    pub(super) fn look_around(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.refresh();
        }
    }

    /// A server says that it is not the one, or not ready.
    pub(super) fn outdated(&self, wire: &Wire) {
        match &self.cluster {
            Some(cluster) => cluster.refresh(),
            // The primary is asked for again, and so is the host's address.
            None => wire.give_up(),
        }
    }

    /// Why nothing works at the moment.
    pub(super) async fn why_not(&self) -> Error {
        let node = self.map.borrow().nodes().first().map(|(_, node)| node.clone());
        let failed = match node {
            Some(node) => node.connected(Instant::now()).await.err(),
            None => None,
        };
        failed.unwrap_or_else(|| Unreachable::new("cannot subscribe in time: try again").to_error())
    }
}

/// An error about one server of a cluster that has answered before.
fn during_failover(error: Error) -> Error {
    let may_recover = error.kind() == ErrorKind::Unavailable;
    error.transient_if(may_recover)
}

impl Drop for Started {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
