//! etcd: keys, and leases.

use std::future::ready;

use leasehold_servers::etcd::Etcd;

use super::{Look, Server};

impl Server for Etcd {
    fn url(&self) -> String {
        self.url()
    }

    fn rows(&self) -> Look<'_> {
        let keys = self.ctl(&["get", "--prefix", "--keys-only", "leasehold/"]);
        // All but the inboxes, which are the sessions' own.
        let ours = |key: &&str| key.starts_with("leasehold/") && !key.starts_with("leasehold/inbox/");
        Box::pin(ready(Ok(keys.lines().filter(ours).count())))
    }

    fn sessions(&self) -> Look<'_> {
        // A line that counts them, and one for each.
        let leases = self.ctl(&["lease", "list"]).lines().count().saturating_sub(1);
        let inboxes = self.ctl(&["get", "--prefix", "--keys-only", "leasehold/inbox/"]);
        let inboxes = inboxes.lines().filter(|key| !key.is_empty()).count();
        Box::pin(ready(Ok(leases + inboxes)))
    }
}
