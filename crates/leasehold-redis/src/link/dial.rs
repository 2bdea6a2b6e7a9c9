//! Making connections: the one place that knows the client's settings.

use std::sync::Arc;

use leasehold_core::Check;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo,
};
use tokio::time::Instant;

use super::wire::{Health, Wire};
use crate::fault::Unreachable;
use crate::inbox::Inboxes;
use crate::settings;
use crate::url::{Address, Login, Target};

/// So many calls may wait to be written. More than the client's own default, so that what many tasks ask for at once
/// goes out at once, and nobody has to wait for a place in line.
const BACKLOG: usize = 1024;

/// Connects to servers as the URL says.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    target: Arc<Target>,
    inboxes: Arc<Inboxes>,
}

impl Dialer {
    pub(super) fn new(target: Arc<Target>, inboxes: Arc<Inboxes>) -> Self {
        Self { target, inboxes }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// A connection to a server of ours: it hears messages, and knows when it ends.
    pub(super) async fn connect(&self, address: &Address) -> Result<Wire, Unreachable> {
        let health = Health::new();
        let (inboxes, ended) = (self.inboxes.clone(), health.clone());
        let hear = move |push: PushInfo| -> Result<(), ()> {
            match push.kind {
                PushKind::Message => inboxes.deliver(&push.data),
                PushKind::Disconnection => ended.give_up(),
                _ => {}
            }
            Ok(())
        };
        let settings = self.settings().set_push_sender(hear);
        let connection = self.open(address, &self.target.login, self.target.db, &settings).await?;
        let wire = Wire::new(connection, health, address.clone(), self.inboxes.secret().clone());
        match self.look_at(&wire).await {
            Some(check) => Err(Unreachable::unfit(&check, address)),
            None => Ok(wire),
        }
    }

    /// Asks a server who it is by now. Answers what makes it unfit for locks, if it has become a primary since.
    pub(super) async fn look_at(&self, wire: &Wire) -> Option<Check> {
        let memory = wire.ask_who(Instant::now() + self.target.timeout).await?;
        settings::refused(&memory)
    }

    /// A connection to a sentinel, for one question.
    pub(super) async fn connect_sentinel(
        &self,
        address: &Address,
        login: &Login,
    ) -> Result<MultiplexedConnection, Unreachable> {
        self.open(address, login, 0, &self.settings()).await
    }

    fn settings(&self) -> AsyncConnectionConfig {
        let limit = Some(self.target.connect_timeout);
        // Calls are bounded one by one, with what is left of their own time.
        let settings = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(None);
        settings.set_pipeline_buffer_size(BACKLOG)
    }

    async fn open(
        &self,
        address: &Address,
        login: &Login,
        db: i64,
        settings: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Unreachable> {
        let client = self.client(address, login, db)?;
        let connected = client.get_multiplexed_async_connection_with_config(settings).await;
        connected.map_err(|error| Unreachable::connecting(&error, address))
    }

    fn client(&self, address: &Address, login: &Login, db: i64) -> Result<Client, Unreachable> {
        let place = match (address, &self.target.tls) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Address::Tcp(host, port), None) => ConnectionAddr::Tcp(host.clone(), *port),
            (Address::Tcp(host, port), Some(_)) => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
        };
        // Pushed messages need RESP3. The name of the library is not sent: an ACL may forbid CLIENT.
        let mut me = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_db(db);
        me = me.set_skip_set_lib_name();
        if let Some(user) = &login.user {
            me = me.set_username(user);
        }
        if let Some(password) = &login.password {
            me = me.set_password(password);
        }
        let wrong = |error: redis::RedisError| Unreachable::connecting(&error, address);
        let info: ConnectionInfo = place.into_connection_info().map_err(wrong)?;
        // Small requests must not wait for the acknowledgement of the one before.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true)).set_redis_settings(me);
        match &self.target.tls {
            Some(tls) => Client::build_with_tls(info, crate::tls::read(tls)?),
            None => Client::open(info),
        }
        .map_err(wrong)
    }
}
