//! The ZooKeeper store on an ensemble of three, before the suite that judges every store.

mod judged;

use std::process::ExitCode;

use judged::{Place, judge};
use leasehold_servers::Proxy;
use leasehold_servers::zookeeper::Ensemble;

fn main() -> ExitCode {
    judge::<Three>("zookeeper ensemble")
}

/// Three servers, each behind a proxy that can cut it off from clients.
#[derive(Debug)]
struct Three {
    ensemble: Ensemble,
    proxies: Vec<Proxy>,
}

impl Place for Three {
    fn start() -> Self {
        // Members that are slow are not given up: on a busy machine that would be an election every now and then.
        let mut ensemble = Ensemble::with(&["syncLimit=100", "initLimit=100"]);
        let proxies =
            (0..ensemble.members()).map(|member| Proxy::to(ensemble.server(member).port())).collect();
        Self { ensemble, proxies }
    }

    fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    fn ports(&mut self) -> Vec<u16> {
        (0..self.ensemble.members()).map(|member| self.ensemble.server(member).port()).collect()
    }

    fn restart(&mut self) {
        let leader = self.ensemble.leader();
        self.ensemble.server(leader).restart();
    }
}
