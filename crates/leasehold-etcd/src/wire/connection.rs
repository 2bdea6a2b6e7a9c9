//! A connection to one member.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use h2::Ping;
use leasehold_core::url::{Address, Login, TlsFiles};
use leasehold_core::{Error, ErrorKind};
use prost::Message;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::crowd::Crowd;
use super::fault::Fault;
use super::grpc::{Caller, Incoming};
use super::message::{
    Authenticate, Authenticated, Committed, Empty, Header, KeptAlive, LeaseGrant, LeaseGranted, LeaseId,
    LockRequest, Locked, Range, Ranged, Status, TimeLeft, TimeToLive, Txn, Unlock, Watch,
};
use crate::url::Target;

/// Room for what a server sends before we have read it.
const WINDOW: u32 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Connection {
    caller: Caller,
    timeout: Duration,
    /// Whether it is over: nobody should start anything on it any more.
    retired: watch::Sender<bool>,
    driver: AbortHandle,
    pub(super) crowd: Crowd,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects and logs in, within the time that the URL allows.
    pub(crate) async fn dial(target: &Target, endpoint: &Address) -> Result<Arc<Self>, Fault> {
        let (limit, mut has_answered) = (target.connect_timeout, false);
        let connected = Self::connect(target, endpoint, &mut has_answered);
        let connected = tokio::time::timeout(limit, connected).await;
        let connected = connected
            .unwrap_or_else(|_| Err(Fault::Member(unreached(format!("no answer within {limit:?}")))));
        connected.map_err(|fault| match fault {
            // Logging in takes a leader.
            Fault::Member(error) => Fault::Member(error.transient_if(has_answered)),
            fault => fault,
        })
    }

    async fn connect(
        target: &Target,
        endpoint: &Address,
        has_answered: &mut bool,
    ) -> Result<Arc<Self>, Fault> {
        let unreachable = |e: io::Error| Fault::Member(unreached(e.to_string()));
        let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        let mut connection = match &target.tls {
            None => Self::greet(tcp, format!("http://{endpoint}"), target.timeout).await?,
            Some(tls) => {
                let config = Arc::new(over_http2(tls).map_err(Fault::Final)?);
                let name = endpoint.host.clone().try_into();
                let name = name.map_err(|e| {
                    Fault::lost(ErrorKind::Invalid, "the host has no name for a certificate", e)
                })?;
                let stream = TlsConnector::from(config).connect(name, tcp).await;
                Self::greet(stream.map_err(unreachable)?, format!("https://{endpoint}"), target.timeout)
                    .await?
            }
        };
        *has_answered = true;
        if let Login { user: Some(name), password: Some(password) } = target.login.clone() {
            let login = Authenticate { name, password };
            let reply: Authenticated =
                connection.caller.call("etcdserverpb.Auth/Authenticate", &login).await?;
            let token = reply.token.try_into();
            let token = token.map_err(|e: http::header::InvalidHeaderValue| {
                Fault::lost(ErrorKind::Protocol, "the token is none", e)
            })?;
            connection.caller.token = Some(token);
        }
        Ok(Arc::new(connection))
    }

    async fn greet<S>(stream: S, origin: String, timeout: Duration) -> Result<Self, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let greeted = builder.handshake(stream).await;
        let strange = |e| Fault::lost(ErrorKind::Unavailable, "no HTTP/2 is spoken there", e);
        let (requests, mut driver) = greeted.map_err(strange)?;
        let pings = driver.ping_pong();
        let driver = tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "connection ended");
            }
        });
        let caller = Caller { requests, origin, token: None };
        let retired = watch::Sender::new(false);
        let (driver, crowd) = (driver.abort_handle(), Crowd::default());
        let connection = Self { caller, timeout, retired, driver, crowd };
        if let Some(mut pings) = pings {
            // Our side is polite before the other has said a word: only its answer tells who is there.
            pings.ping(Ping::opaque()).await.map_err(strange)?;
        }
        Ok(connection)
    }

    pub(crate) fn is_retired(&self) -> bool {
        *self.retired.borrow()
    }

    pub(crate) fn retire(&self) {
        self.retired.send_replace(true);
    }

    /// Waits until nobody should use it any more.
    pub(crate) async fn retirement(&self) {
        // The sender lives as long as we do.
        let _ = self.retired.subscribe().wait_for(|is_over| *is_over).await;
    }

    /// One call, within the time that a call may take.
    async fn call<A: Message + Default>(&self, path: &str, question: &impl Message) -> Result<A, Fault> {
        self.within(path, self.caller.call(path, question)).await
    }

    async fn within<T>(&self, path: &str, call: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let limit = self.timeout;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            let message = "the member does not answer: it may have happened";
            Err(Fault::lost(ErrorKind::Indeterminate, message, format!("{path} took longer than {limit:?}")))
        })
    }

    pub(crate) async fn txn(&self, txn: &Txn) -> Result<Committed, Fault> {
        self.call("etcdserverpb.KV/Txn", txn).await
    }

    pub(crate) async fn range(&self, range: &Range) -> Result<Ranged, Fault> {
        self.call("etcdserverpb.KV/Range", range).await
    }

    pub(crate) async fn grant(&self, ttl: i64) -> Result<LeaseGranted, Fault> {
        self.call("etcdserverpb.Lease/LeaseGrant", &LeaseGrant { ttl }).await
    }

    /// Its answer alone proves nothing: see `session.rs`.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<KeptAlive, Fault> {
        self.call("etcdserverpb.Lease/LeaseKeepAlive", &LeaseId { id }).await
    }

    pub(crate) async fn time_left(&self, id: i64, keys: bool) -> Result<TimeLeft, Fault> {
        self.call("etcdserverpb.Lease/LeaseTimeToLive", &TimeToLive { id, keys }).await
    }

    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Fault> {
        let _: Empty = self.call("etcdserverpb.Lease/LeaseRevoke", &LeaseId { id }).await?;
        Ok(())
    }

    /// The server's own lock, however long that takes: for benchmarks only.
    pub(crate) async fn lock(&self, name: &str, lease: i64) -> Result<Locked, Fault> {
        self.caller.call("v3lockpb.Lock/Lock", &LockRequest { name: name.as_bytes().to_vec(), lease }).await
    }

    /// Gives that back.
    pub(crate) async fn unlock(&self, key: Vec<u8>) -> Result<(), Fault> {
        let _: Empty = self.call("v3lockpb.Lock/Unlock", &Unlock { key }).await?;
        Ok(())
    }

    /// Listens to keys. The member must begin to answer within the time that a call may take.
    pub(crate) async fn watch(&self, watch: &Watch) -> Result<Incoming, Fault> {
        let path = "etcdserverpb.Watch/Watch";
        self.within(path, self.caller.stream(path, watch)).await
    }

    /// What the member says about itself.
    pub(crate) async fn status(&self) -> Result<Status, Fault> {
        self.call("etcdserverpb.Maintenance/Status", &Empty {}).await
    }
}

fn unreached(why: String) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

/// Whose answer it was, under which leader; absent in no answer of etcd's.
pub(crate) fn header(header: Option<Header>) -> Result<Header, Fault> {
    header.ok_or_else(|| Fault::lost(ErrorKind::Protocol, "an answer without a header", "is this etcd?"))
}

/// What the files say, for HTTP/2.
fn over_http2(files: &TlsFiles) -> leasehold_core::Result<ClientConfig> {
    let mut config = (*leasehold_tls::client_config("etcd", files)?).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
