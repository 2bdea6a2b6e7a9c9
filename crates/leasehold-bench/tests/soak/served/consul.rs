//! Consul: keys, and sessions.

use std::future::ready;

use leasehold_servers::consul::Consul;

use super::{Look, Server};

impl Server for Consul {
    fn url(&self) -> String {
        self.url()
    }

    fn rows(&self) -> Look<'_> {
        let (_, keys) = self.ask("GET", "/v1/kv/leasehold/?keys", "");
        // All but what is the sessions' own.
        let ours = ["leasehold/locks/", "leasehold/loose/"].map(|prefix| keys.matches(prefix).count());
        Box::pin(ready(Ok(ours.iter().sum())))
    }

    fn sessions(&self) -> Look<'_> {
        let (_, sessions) = self.ask("GET", "/v1/session/list", "");
        Box::pin(ready(Ok(sessions.matches("\"leasehold\"").count())))
    }
}
