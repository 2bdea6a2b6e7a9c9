//! A cluster of three primaries, each with a replica.

use super::{Redis, START};
use crate::port::free_port;
use crate::process::wait_until;

const SLOTS: u16 = 16384;
const PRIMARIES: u16 = 3;

/// A server of a cluster.
#[derive(Debug)]
struct Node {
    server: Redis,
    bus: u16,
    /// What the others call it.
    id: String,
}

/// The servers of a cluster; a dead primary is replaced within about three seconds.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    /// Three primaries and three replicas, once all of them agree.
    ///
    /// # Panics
    /// When a program is missing or does not answer.
    pub fn start() -> Self {
        let cluster = Self { nodes: (0..2 * PRIMARIES).map(|_| node()).collect() };
        let share = SLOTS.div_ceil(PRIMARIES);
        for (index, node) in (0..).zip(&cluster.nodes) {
            // Chosen by hand, so that nobody has to give way to somebody with the same.
            node.server.cli(&["cluster", "set-config-epoch", &(index + 1).to_string()]);
            if index < PRIMARIES {
                let (first, last) = (share * index, (share * (index + 1)).min(SLOTS) - 1);
                node.server.cli(&["cluster", "addslotsrange", &first.to_string(), &last.to_string()]);
            }
        }
        cluster.introduce();
        let (primaries, replicas) = cluster.nodes.split_at(usize::from(PRIMARIES));
        for (primary, replica) in primaries.iter().zip(replicas) {
            replica.server.cli(&["cluster", "replicate", &primary.id]);
        }
        for replica in replicas {
            wait_until("the replicas have the data", START, || {
                replica.server.cli(&["info", "replication"]).contains("master_link_status:up")
            });
        }
        cluster.wait_until_whole();
        cluster
    }

    /// Has everybody meet everybody.
    fn introduce(&self) {
        let first = &self.nodes[0];
        for node in &self.nodes[1..] {
            let (port, bus) = (node.server.port().to_string(), node.bus.to_string());
            first.server.cli(&["cluster", "meet", "127.0.0.1", &port, &bus]);
        }
        for node in &self.nodes {
            wait_until("everybody knows everybody", START, || {
                let known = node.server.cli(&["cluster", "nodes"]);
                known.lines().count() == self.nodes.len() && !known.contains("handshake")
            });
        }
    }

    /// Waits until every server says that the cluster is well and who is a replica.
    fn wait_until_whole(&self) {
        for node in &self.nodes {
            wait_until("the cluster is whole", START, || {
                let replicas = node.server.cli(&["cluster", "nodes"]).matches("slave").count();
                replicas == usize::from(PRIMARIES)
                    && node.server.cli(&["cluster", "info"]).contains("cluster_state:ok")
            });
        }
    }

    /// The URL that names three of the servers.
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.nodes[..3].iter().map(|node| format!("127.0.0.1:{}", node.server.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// One of the servers: the primaries of the beginning come first, then their replicas in the same order.
    pub fn server(&mut self, index: usize) -> &mut Redis {
        &mut self.nodes[index].server
    }

    /// Which server has this key, by the word of server `by`.
    ///
    /// # Panics
    /// When it names none of ours.
    pub fn owner(&self, key: &str, by: usize) -> usize {
        let asked = &self.nodes[by].server;
        let slot: u16 = asked.cli(&["cluster", "keyslot", key]).parse().expect("a slot is a number");
        let table = asked.cli(&["cluster", "nodes"]);
        let has = |line: &&str| {
            let slots = line.split(' ').skip(8).filter(|range| !range.starts_with('['));
            slots
                .filter_map(|range| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
                })
                .any(|range| range.contains(&slot))
        };
        let line = table.lines().find(has).expect("somebody has the slot");
        let id = line.split(' ').next().unwrap_or_default();
        self.nodes.iter().position(|node| node.id == id).expect("the owner is one of ours")
    }

    /// Moves the slot of a key with everything in it, step by step, as `redis-cli --cluster reshard` does.
    /// Between the steps `meanwhile` is called.
    pub fn move_slot(&mut self, key: &str, to: usize, mut meanwhile: impl FnMut()) {
        let from = self.owner(key, to);
        let slot = self.nodes[from].server.cli(&["cluster", "keyslot", key]);
        let (source, target) = (self.nodes[from].id.clone(), self.nodes[to].id.clone());
        let (giver, taker) = (&self.nodes[from].server, &self.nodes[to].server);
        taker.cli(&["cluster", "setslot", &slot, "importing", &source]);
        giver.cli(&["cluster", "setslot", &slot, "migrating", &target]);
        meanwhile();
        loop {
            let keys = giver.cli(&["cluster", "getkeysinslot", &slot, "1"]);
            let Some(key) = keys.lines().next().filter(|key| !key.is_empty()) else { break };
            giver.cli(&["migrate", "127.0.0.1", &taker.port().to_string(), key, "0", "5000", "replace"]);
            meanwhile();
        }
        taker.cli(&["cluster", "setslot", &slot, "node", &target]);
        giver.cli(&["cluster", "setslot", &slot, "node", &target]);
        meanwhile();
    }
}

fn node() -> Node {
    let bus = free_port();
    let port = bus.to_string();
    let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", &port];
    let always = ["--cluster-replica-validity-factor", "0"];
    let server = Redis::with(&[&settings[..], &always].concat());
    let id = server.cli(&["cluster", "myid"]);
    Node { server, bus, id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_moves_with_its_keys() {
        let mut cluster = Cluster::start();
        let from = cluster.owner("key", 0);
        let to = (from + 1) % 3;
        assert_eq!(cluster.server(from).cli(&["set", "key", "value"]), "OK");
        cluster.move_slot("key", to, || {});
        assert_eq!(cluster.owner("key", to), to);
        assert_eq!(cluster.server(to).cli(&["get", "key"]), "value");
    }
}
