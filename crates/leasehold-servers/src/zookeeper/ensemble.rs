//! Three servers, if need be with a proxy on every way between two of them.
//!
//! Only what followers and leaders say to each other goes through the proxies. Elections do not: a server tells the
//! others where to call back. So a member that is cut off hears who leads, but can neither follow nor be followed.
//! And not by default: a follower that calls a leader too early is refused and calls again, but a proxy accepts and then
//! hangs up, and that costs another election.

use super::{START, ZooKeeper};
use crate::port::free_port;
use crate::process::wait_until;
use crate::proxy::{Mode, Proxy};

/// How many servers there are.
const MEMBERS: usize = 3;

/// An ensemble of three.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<ZooKeeper>,
    /// From whom to whom.
    ways: Vec<(usize, usize, Proxy)>,
}

impl Ensemble {
    /// An ensemble that has a leader and two followers.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// The same, with more lines in every member's configuration.
    pub fn with(lines: &[&str]) -> Self {
        Self::new(lines, false)
    }

    /// One whose members can be cut from each other, with more lines in every member's configuration.
    pub fn to_be_cut(lines: &[&str]) -> Self {
        Self::new(lines, true)
    }

    fn new(lines: &[&str], to_be_cut: bool) -> Self {
        let ports: Vec<[u16; 3]> = (0..MEMBERS).map(|_| [free_port(), free_port(), free_port()]).collect();
        let mut ways = Vec::new();
        let mut servers = Vec::new();
        for from in 0..MEMBERS {
            let mut all = vec!["initLimit=25".to_owned(), "syncLimit=10".to_owned()];
            all.extend(lines.iter().map(ToString::to_string));
            for (to, [_, peer, election]) in ports.iter().enumerate() {
                let peer = if to == from || !to_be_cut {
                    *peer
                } else {
                    let proxy = Proxy::to(*peer);
                    let port = proxy.port();
                    ways.push((from, to, proxy));
                    port
                };
                all.push(format!("server.{}=127.0.0.1:{peer}:{election}", to + 1));
            }
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            servers.push(ZooKeeper::member(ports[from][0], Some(from + 1), &all, &[]));
        }
        let ensemble = Self { servers, ways };
        ensemble.wait();
        ensemble
    }

    /// Waits until all serve.
    pub fn wait(&self) {
        wait_until("all members serve", START, || self.parts().iter().all(Option::is_some));
    }

    /// What part each member has.
    pub fn parts(&self) -> Vec<Option<String>> {
        self.servers.iter().map(ZooKeeper::part).collect()
    }

    /// The member that leads.
    ///
    /// # Panics
    /// When there is none for long.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_until("somebody leads", START, || {
            leader = self.parts().iter().position(|part| part.as_deref() == Some("leader"));
            leader.is_some()
        });
        leader.expect("it was waited for")
    }

    /// A member.
    pub fn server(&mut self, member: usize) -> &mut ZooKeeper {
        &mut self.servers[member]
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.servers.len()
    }

    /// The URL of all.
    pub fn url(&self) -> String {
        let ports = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port()));
        format!("zookeeper://{}", ports.collect::<Vec<_>>().join(","))
    }

    /// Cuts a member from the others. Clients still reach it.
    ///
    /// # Panics
    /// When it is not an ensemble [to be cut](Self::to_be_cut).
    pub fn isolate(&self, member: usize) {
        assert!(!self.ways.is_empty(), "nothing is between the members");
        self.set(member, Mode::Hold);
    }

    /// Mends that.
    pub fn join(&self, member: usize) {
        self.set(member, Mode::Pass);
    }

    fn set(&self, member: usize, mode: Mode) {
        for (_, _, proxy) in self.ways.iter().filter(|(from, to, _)| *from == member || *to == member) {
            proxy.set(mode);
            if mode == Mode::Pass {
                // What was held is from another time.
                proxy.cut();
            }
        }
    }
}
