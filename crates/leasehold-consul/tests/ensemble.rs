//! The Consul store on three servers, before the suite that judges every store.
//!
//! Only some groups run each time: how a primitive uses its claims does not depend on the number of servers, and three are
//! slow on a small machine. `LEASEHOLD_SOAK=1` runs everything.

mod judged;

use std::process::ExitCode;

use judged::{Place, judge};
use leasehold_servers::Proxy;
use leasehold_servers::consul::Trio;

/// What more servers could break: who holds, in which order, with which token, and what failures do to that.
const GROUPS: &[&str] = &[
    "asking",
    "contention",
    "differential",
    "ending",
    "exclusion",
    "faults",
    "guards",
    "histories",
    "late",
    "latch",
    "leaks",
    "leases",
    "mutex",
    "order",
    "outages",
    "polling",
    "semaphore",
    "sessions",
    "sight",
    "tokens",
];

fn main() -> ExitCode {
    judge::<Ensemble>("consul3", Some(GROUPS))
}

/// Three servers, each behind a proxy that can cut it off.
#[derive(Debug)]
struct Ensemble {
    trio: Trio,
    proxies: Vec<Proxy>,
}

impl Place for Ensemble {
    fn start() -> Self {
        let mut trio = Trio::start();
        let proxies = trio.servers().iter().map(|server| Proxy::to(server.port())).collect();
        Self { trio, proxies }
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        format!("consul://{}?min_lease=1s", hosts.join(","))
    }

    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        self.trio.ask(method, path)
    }

    fn restart(&mut self) {
        let leader = self.trio.leader();
        let server = &mut self.trio.servers()[leader];
        server.process().kill();
        server.start_again();
        self.trio.wait();
    }

    fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }
}
