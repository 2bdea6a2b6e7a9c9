//! Stores on servers: each starts one of its own, and counts what is stored there without the library.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use leasehold_servers::zookeeper::ZooKeeper;
use zookeeper_client::{Client, Error};

use crate::Outcome;

/// A look at a server.
pub(crate) type Look<'a> = Pin<Box<dyn Future<Output = Outcome<usize>> + Send + 'a>>;

/// A server with nothing on it. Gone when it is dropped.
pub(crate) trait Server: Debug + Send + Sync {
    /// What `--store` takes.
    fn url(&self) -> String;
    /// How many claims, keys and marks there are.
    fn rows(&self) -> Look<'_>;
    /// How many sessions of clients there are, whatever carries their claims: a client that is connected may have some.
    fn sessions(&self) -> Look<'_>;
}

/// Starts a server of its own.
type Start = fn() -> Box<dyn Server>;

/// All of them, by the names of their stores.
pub(crate) const SERVERS: &[(&str, Start)] = &[("zookeeper", || Box::new(ZooKeeper::start()))];

impl Server for ZooKeeper {
    fn url(&self) -> String {
        format!("{}?tick=200ms", self.url())
    }

    fn rows(&self) -> Look<'_> {
        Box::pin(nodes_below(self.port(), "/leasehold/locks"))
    }

    fn sessions(&self) -> Look<'_> {
        Box::pin(nodes_below(self.port(), "/leasehold/clients"))
    }
}

async fn nodes_below(port: u16, path: &str) -> Outcome<usize> {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(30));
    let client = connector.connect(&format!("127.0.0.1:{port}")).await?;
    match client.count_descendants_number(path).await {
        Err(Error::NoNode) => Ok(0),
        counted => Ok(counted?),
    }
}
