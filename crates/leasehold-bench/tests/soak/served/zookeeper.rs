//! ZooKeeper: what is below our nodes.

use std::time::Duration;

use leasehold_servers::zookeeper::ZooKeeper;
use zookeeper_client::{Client, Error};

use super::{Look, Server};
use crate::Outcome;

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
