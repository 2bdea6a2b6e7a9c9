//! TLS as the driver wants it; and why a server and we do not trust each other, which the driver does not tell.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::url::{Address, TlsFiles};
use leasehold_core::{Error, ErrorKind, Result};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;
use zookeeper_client::{
    Client, Connector, SessionState, StateWatcher, TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions,
};

use crate::driver;
use crate::probe;
use crate::url::Target;

const STORE: &str = "zookeeper";

/// How long a server may take to say that it refuses our certificate.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a handshake may take when we find out why there is no session.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Refuses hosts that no certificate can name: the driver would panic.
pub(crate) fn check_names(target: &Target) -> Result<()> {
    let is_wrong = |address: &&Address| ServerName::try_from(address.host.as_str()).is_err();
    match target.hosts.iter().find(is_wrong).filter(|_| target.tls.is_some()) {
        None => Ok(()),
        Some(Address { host, .. }) => {
            let message = format!("\"{}\" is no name for a certificate: check the host", host.escape_debug());
            Err(Error::new(ErrorKind::Invalid, message).at(STORE))
        }
    }
}

/// Connects, with TLS if the URL says so.
pub(crate) async fn connect(
    connector: Connector,
    target: &Target,
    ended: &watch::Sender<bool>,
) -> Result<Client> {
    let cluster = target.cluster();
    let Some(files) = &target.tls else {
        return match driver::connect(connector, &cluster, ended).await {
            Ok(zk) => Ok(zk),
            Err(fault) => Err(probe::why_not(target, fault).await),
        };
    };
    let certs = TlsDynamicCerts::new(read(files)?);
    let connector = connector.with_tls(TlsOptions::new().with_certs(certs.clone()));
    let zk = match driver::connect(connector, &cluster, ended).await {
        Ok(zk) => zk,
        Err(fault) => {
            return Err(match refused(target, files).await {
                Some(error) => error,
                None => probe::why_not(target, fault).await,
            });
        }
    };
    tokio::spawn(refresh(files.clone(), certs, zk.state_watcher(), ended.subscribe()));
    Ok(zk)
}

/// The certificates that the files have now.
fn read(files: &TlsFiles) -> Result<TlsCerts> {
    let pem = leasehold_tls::pem(STORE, files)?;
    let unusable =
        |fault| Error::new(ErrorKind::Invalid, "cannot use the certificates").at(STORE).because(fault);
    let certs = TlsCerts::builder().with_ca(TlsCa::from_pem(&pem.trusted).map_err(unusable)?);
    let certs = match &pem.identity {
        Some((certificate, key)) => {
            certs.with_identity(TlsIdentity::from_pem(certificate, key).map_err(unusable)?)
        }
        None => certs,
    };
    certs.build().map_err(unusable)
}

/// Reads the files again whenever the connection was lost: certificates are renewed in place, and a session lives longer
/// than they do.
async fn refresh(
    files: TlsFiles,
    certs: TlsDynamicCerts,
    mut state: StateWatcher,
    mut ending: watch::Receiver<bool>,
) {
    loop {
        let state = tokio::select! {
            biased;
            _ = ending.wait_for(|ended| *ended) => return,
            state = state.changed() => state,
        };
        if state == SessionState::Disconnected {
            match read(&files) {
                Ok(new) => certs.update(new),
                // What was read before may still do.
                Err(error) => tracing::warn!(%error, "cannot read the certificates again"),
            }
        }
    }
}

/// Why servers that can be reached do not serve us, if all of them refuse, or we refuse all of them.
async fn refused(target: &Target, files: &TlsFiles) -> Option<Error> {
    let connector = match leasehold_tls::client_config(STORE, files) {
        Ok(config) => TlsConnector::from(config),
        Err(error) => return Some(error),
    };
    let greet = |host| timeout(HANDSHAKE, greet(&connector, host));
    let found = join_all(target.hosts.iter().map(greet)).await;
    let mut said = found.into_iter().flatten().flatten();
    let Some(Err(first)) = said.next() else { return None };
    said.all(|found| found.is_err()).then_some(first)
}

/// Whether a server and we trust each other; nothing when it cannot be reached.
async fn greet(connector: &TlsConnector, at: &Address) -> Option<Result<()>> {
    let stream = TcpStream::connect((at.host.as_str(), at.port)).await.ok()?;
    let name = ServerName::try_from(at.host.clone()).ok()?;
    let mut stream = match connector.connect(name, stream).await {
        Ok(stream) => stream,
        Err(error) => return Some(Err(explain(at, error))),
    };
    // Who refuses our certificate says so only after the handshake. Who does not waits for us to speak.
    match timeout(PATIENCE, stream.read_u8()).await {
        Ok(Err(error)) => Some(Err(explain(at, error))),
        _ => Some(Ok(())),
    }
}

fn explain(at: &Address, error: io::Error) -> Error {
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<rustls::Error>());
    let is_certificate =
        matches!(inside, Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)));
    let (kind, message) = if is_certificate {
        (ErrorKind::Denied, "the certificates do not match: check cacert, cert, key and the host's name")
    } else {
        (ErrorKind::Unavailable, "no TLS is spoken there: name the server's secureClientPort")
    };
    Error::new(kind, format!("{at}: {message}: {error}")).at(STORE)
}
