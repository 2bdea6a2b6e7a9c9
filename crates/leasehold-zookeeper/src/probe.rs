//! Why no server gives us a session: the driver does not say.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::url::{Address, Unreached};
use leasehold_core::{Error, ErrorKind};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zookeeper_client::Error as Fault;

use crate::fault::unreachable;
use crate::url::Target;

/// How long a server may take to accept a connection.
const PATIENCE: Duration = Duration::from_millis(500);

/// The reason for the fault with which connecting has ended: servers that cannot be reached, or servers that accept
/// connections and give no session, as those of an ensemble without a quorum do.
pub(crate) async fn why_not(target: &Target, fault: Fault) -> Error {
    let error = unreachable(fault);
    if error.kind() != ErrorKind::Unavailable {
        return error;
    }
    let found = join_all(target.hosts.iter().map(accepts)).await;
    if found.iter().any(Result::is_ok) {
        let accepting = target.hosts.iter().zip(&found).filter(|(_, found)| found.is_ok());
        let accepting: Vec<String> = accepting.map(|(host, _)| host.to_string()).collect();
        let message = format!(
            "{} accepts connections, but gives no session: check that a quorum of the ensemble runs",
            accepting.join(", ")
        );
        return Error::new(ErrorKind::Unavailable, message).at("zookeeper").transient_if(true);
    }
    let mut unreached = Unreached::default();
    for (host, found) in target.hosts.iter().zip(found) {
        if let Err(why) = found {
            unreached.add(host, why);
        }
    }
    unreached.into_error("zookeeper")
}

async fn accepts(host: &Address) -> Result<(), String> {
    match timeout(PATIENCE, TcpStream::connect((host.host.as_str(), host.port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(why)) => Err(why.to_string()),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}
