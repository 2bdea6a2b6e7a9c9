//! Three members, which hear of each other through proxies, so that one can be cut off while clients still reach it.

use super::{Etcd, TOGETHER};
use crate::peers::Peers;
use crate::port::free_port;
use crate::process::wait_until;

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Three members.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Etcd>,
    peers: Peers,
}

impl Cluster {
    /// A cluster that answers.
    pub fn start() -> Self {
        let ports = NAMES.map(|_| free_port());
        let peers = Peers::to(&ports);
        let known_as = peers.ports();
        let cluster: Vec<String> = NAMES
            .iter()
            .zip(&known_as)
            .map(|(name, port)| format!("{name}=http://127.0.0.1:{port}"))
            .collect();
        let member = |at: usize| {
            Etcd::member(NAMES[at], free_port(), ports[at], known_as[at], &cluster.join(","), TOGETHER)
        };
        let members = (0..NAMES.len()).map(member).collect();
        let mut cluster = Self { members, peers };
        cluster.introduce();
        cluster.members.iter_mut().for_each(Etcd::wait);
        cluster
    }

    /// Tells the proxies which processes the members are.
    fn introduce(&self) {
        self.peers.are(self.members.iter().map(|member| member.process.pid()).collect());
    }

    /// The URL of all members.
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.members.iter().map(|member| format!("127.0.0.1:{}", member.port())).collect();
        format!("etcd://{}", hosts.join(","))
    }

    /// Its members.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// One of them.
    pub fn member(&mut self, at: usize) -> &mut Etcd {
        &mut self.members[at]
    }

    /// Which member leads, by the account of those who answer and hear of the others.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_until("the cluster has a leader", super::START, || {
            leader = (0..self.members.len()).find(|at| !self.peers.is_cut(*at) && self.members[*at].leads());
            leader.is_some()
        });
        leader.expect("it was waited for")
    }

    /// Nothing passes between this member and the others any more.
    pub fn cut(&self, at: usize) {
        self.peers.cut(at);
    }

    /// Everything passes again.
    pub fn heal(&self) {
        self.peers.heal();
    }

    /// Starts a member again that was killed, and does not wait until it answers.
    pub fn start_again(&mut self, at: usize) {
        self.members[at].start_again();
        self.introduce();
    }

    /// Waits until all members answer.
    pub fn wait(&mut self) {
        self.members.iter_mut().for_each(Etcd::wait);
    }

    /// What the first member says that knows an answer: see [`Etcd::ask`].
    pub fn ask(&self, path: &str, body: &str) -> Option<String> {
        let mut whole = (0..self.members.len()).filter(|at| !self.peers.is_cut(*at));
        whole.find_map(|at| self.members[at].ask(path, body))
    }

    /// What `etcdctl` says at the first member that answers. That is asked first: not every command of it gives up on a
    /// member that does not.
    ///
    /// # Panics
    /// When none does, or the command fails.
    pub fn ctl(&self, words: &[&str]) -> String {
        let mut whole = (0..self.members.len()).filter(|at| !self.peers.is_cut(*at));
        let answering = whole.find(|at| self.members[*at].try_ctl(&["get", "probe"]).is_ok());
        self.members[answering.expect("a member answers")].ctl(words)
    }
}
