//! A primary with two replicas, and three sentinels that watch them.

use tempfile::TempDir;

use super::{Redis, START, cli, program};
use crate::port::free_port;
use crate::process::{Process, wait_until};

const SERVICE: &str = "main";

/// How many sentinels must agree.
const QUORUM: usize = 2;

/// One sentinel.
#[derive(Debug)]
struct Watcher {
    _process: Process,
    _directory: TempDir,
    port: u16,
}

/// The servers and their sentinels; a dead primary is replaced within about two seconds.
#[derive(Debug)]
pub struct Sentinel {
    servers: Vec<Redis>,
    watchers: Vec<Watcher>,
}

impl Sentinel {
    /// Everything, once all sentinels know each other and the replicas.
    ///
    /// # Panics
    /// When a program is missing or does not answer.
    pub fn start() -> Self {
        let primary = Redis::start();
        let replicas = [Redis::replica_of(&primary, &[]), Redis::replica_of(&primary, &[])];
        let watchers = (0..3).map(|_| watch(primary.port())).collect::<Vec<_>>();
        let mut servers = vec![primary];
        servers.extend(replicas);
        for watcher in &watchers {
            let knows_all = || {
                let said = cli(watcher.port, &["sentinel", "master", SERVICE]);
                let fields: Vec<_> = said.lines().collect();
                let value = |name: &str| {
                    fields.iter().position(|f| *f == name).and_then(|at| fields.get(at + 1).copied())
                };
                value("num-slaves") == Some("2") && value("num-other-sentinels") == Some("2")
            };
            wait_until("the sentinels know everybody", START, knows_all);
        }
        Self { servers, watchers }
    }

    /// The URL that names the sentinels.
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.watchers.iter().map(|watcher| format!("127.0.0.1:{}", watcher.port)).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// The server that most sentinels call the primary.
    ///
    /// # Panics
    /// When they call a server so that is none of ours.
    pub fn primary(&mut self) -> &mut Redis {
        let port = self.primary_port();
        self.servers.iter_mut().find(|server| server.port() == port).expect("the primary is one of ours")
    }

    /// All servers: the first was the first primary.
    pub fn servers(&mut self) -> &mut [Redis] {
        &mut self.servers
    }

    /// Waits until the sentinels name another primary than `old` and it is one.
    pub fn wait_for_another_than(&self, old: u16) {
        wait_until("the sentinels chose another primary", START, || {
            let port = self.primary_port();
            port != old && cli(port, &["role"]).starts_with("master")
        });
    }

    fn primary_port(&self) -> u16 {
        let named = |watcher: &Watcher| {
            let said = cli(watcher.port, &["sentinel", "get-master-addr-by-name", SERVICE]);
            said.lines().last().and_then(|line| line.parse().ok()).unwrap_or(0)
        };
        let names: Vec<u16> = self.watchers.iter().map(named).collect();
        let most = names.iter().find(|name| names.iter().filter(|other| other == name).count() >= QUORUM);
        most.copied().unwrap_or(0)
    }
}

fn watch(primary: u16) -> Watcher {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let port = free_port();
    let path = directory.path().join("sentinel.conf");
    let settings = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nlogfile log\n\
         sentinel monitor {SERVICE} 127.0.0.1 {primary} {QUORUM}\n\
         sentinel down-after-milliseconds {SERVICE} 500\n\
         sentinel failover-timeout {SERVICE} 1000\n",
        directory.path().display()
    );
    std::fs::write(&path, settings).expect("the directory can be written");
    let process = Process::start(program(), &[path.into(), "--sentinel".into()]);
    wait_until("a sentinel answers", START, || cli(port, &["ping"]) == "PONG");
    let often = ["info-period", "100", "ping-period", "100", "publish-period", "100", "ask-period", "100"];
    cli(port, &[&["sentinel", "debug"], &often[..]].concat());
    Watcher { _process: process, _directory: directory, port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_primary_is_replaced() {
        let mut sentinel = Sentinel::start();
        let old = sentinel.primary().port();
        sentinel.primary().process().kill();
        sentinel.wait_for_another_than(old);
        assert_ne!(sentinel.primary().port(), old);
    }
}
