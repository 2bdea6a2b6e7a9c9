//! The etcd store on a cluster of three members, before the suite that judges every store.

mod judged;

use std::process::ExitCode;
use std::time::Duration;

use judged::{Place, judge};
use leasehold_servers::Proxy;
use leasehold_servers::etcd::Cluster;

fn main() -> ExitCode {
    judge::<Three>("etcd-cluster")
}

/// Three members, each behind a proxy that can cut it off from clients.
#[derive(Debug)]
struct Three {
    cluster: Cluster,
    proxies: Vec<Proxy>,
}

impl Place for Three {
    const LEASE: Duration = Duration::from_secs(2);
    const CROWD: usize = 100;

    fn start() -> Self {
        let cluster = Cluster::start();
        let proxies = cluster.members().iter().map(|member| Proxy::to(member.port())).collect();
        Self { cluster, proxies }
    }

    fn url(&self) -> String {
        let hosts: Vec<String> =
            self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        format!("etcd://{}", hosts.join(","))
    }

    fn ask(&self, path: &str, body: &str) -> Option<String> {
        self.cluster.ask(path, body)
    }

    fn restart(&mut self) {
        let leader = self.cluster.leader();
        self.cluster.member(leader).process().kill();
        self.cluster.start_again(leader);
        self.cluster.wait();
    }

    fn proxies(&self) -> Vec<&Proxy> {
        self.proxies.iter().collect()
    }
}
