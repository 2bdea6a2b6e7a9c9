//! The least that a lock on ZooKeeper could cost: an ephemeral node, made and deleted.

use std::time::Duration;

use leasehold_bench::round::Inside;
use leasehold_bench::subject::{Outcome, Subject};
use zookeeper_client::{Acls, Client, CreateMode};

/// The driver alone.
pub(crate) async fn connect(port: u16) -> Outcome<Client> {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(30));
    Ok(connector.connect(&format!("127.0.0.1:{port}")).await?)
}

/// Nobody waits for it, nobody is told, and nobody knows whether it is still theirs.
#[derive(Clone, Debug)]
pub(crate) struct Pair(Client);

impl Pair {
    pub(crate) async fn connect(port: u16) -> Outcome<Self> {
        Ok(Self(connect(port).await?))
    }
}

impl Subject for Pair {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let path = format!("/{}", name.replace('/', "-"));
        self.0.create(&path, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
        inside.await;
        self.0.delete(&path, None).await?;
        Ok(())
    }
}
