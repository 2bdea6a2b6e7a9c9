//! Three servers of one cluster.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{Consul, Ports};
use crate::peers::{BESIDE, Peers};
use crate::process::wait_until;

/// How long an election may take on a busy machine.
const ELECTION: Duration = Duration::from_secs(60);

/// Three servers, of which two are a majority.
#[derive(Debug)]
pub struct Trio {
    servers: Vec<Consul>,
    /// What stands between them, if anything does.
    peers: Option<Peers>,
}

impl Trio {
    /// Three servers that have a leader.
    ///
    /// # Panics
    /// When there is no `consul`, or they do not agree on a leader.
    pub fn start() -> Self {
        Self::launch([Ports::free(), Ports::free(), Ports::free()], None)
    }

    /// The same with proxies between them, so that one can be [cut off](Self::cut) from the others while clients still
    /// reach it.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn apart() -> Self {
        let ports = [Ports::free(), Ports::free(), Ports::free()];
        let peers = Peers::beside(&ports.map(|ports| [ports.server, ports.gossip]));
        Self::launch(ports, Some(peers))
    }

    fn launch(ports: [Ports; 3], peers: Option<Peers>) -> Self {
        let address = peers.as_ref().map_or(Ipv4Addr::LOCALHOST, |_| BESIDE);
        let (join, advertise) = (
            ports.map(|ports| format!("-retry-join={address}:{}", ports.gossip)),
            format!("-advertise={address}"),
        );
        let mut more = vec!["-bootstrap-expect=3", "-retry-interval=1s", &advertise];
        more.extend(join.iter().map(String::as_str));
        let names = ["n1", "n2", "n3"];
        let servers: Vec<_> = ports
            .into_iter()
            .zip(names)
            .map(|(ports, name)| Consul::launch(ports, name, &more, ""))
            .collect();
        let trio = Self { servers, peers };
        if let Some(peers) = &trio.peers {
            peers.are(trio.servers.iter().map(|server| server.process.pid()).collect());
        }
        trio.wait();
        trio
    }

    /// Nothing passes between this server and the others any more.
    ///
    /// # Panics
    /// When nothing stands [between them](Self::apart).
    pub fn cut(&self, at: usize) {
        self.peers.as_ref().expect("there are proxies between the servers").cut(at);
    }

    /// Everything passes again.
    pub fn heal(&self) {
        self.peers.iter().for_each(Peers::heal);
    }

    /// The servers.
    pub fn servers(&mut self) -> &mut [Consul] {
        &mut self.servers
    }

    /// A URL of all three.
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("consul://{}?min_lease=1s", hosts.join(","))
    }

    /// What the first server says that answers.
    pub fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let said = self.servers.iter().map(|server| server.ask(method, path, ""));
        said.into_iter().find(|(status, _)| *status != 0 && *status < 500).unwrap_or_default()
    }

    /// Waits until all of them know a leader.
    pub fn wait(&self) {
        wait_until("all three know a leader", ELECTION, || self.servers.iter().all(Consul::is_ready));
    }

    /// The place of the server that leads, by the word of another one that runs.
    ///
    /// # Panics
    /// When nobody leads within a minute.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_until("a server leads", ELECTION, || {
            let known = self.servers.iter().map(|server| server.ask("GET", "/v1/status/leader", "").1);
            let port =
                known.filter_map(|said| said.trim().trim_matches('"').rsplit_once(':')?.1.parse().ok());
            let port: Option<u16> = port.into_iter().next();
            leader = self.servers.iter().position(|server| Some(server.ports.server) == port);
            leader.is_some()
        });
        leader.expect("it was waited for")
    }
}
