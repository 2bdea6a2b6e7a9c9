//! Which server to connect to: a fixed one, or the one that the sentinels call the primary.

use redis::{FromRedisValue, Value, cmd};
use tokio::time::{Instant, timeout_at};

use super::dial::Dialer;
use super::vote;
use super::wire::Wire;
use crate::fault::Unreachable;
use crate::url::{Address, Login};

/// Finds a server again for every attempt to connect.
#[derive(Clone, Debug)]
pub(super) enum Finder {
    Fixed(Address),
    Sentinel { sentinels: Vec<Address>, service: String, login: Login },
}

impl Finder {
    /// A connection to the server that it is now.
    pub(super) async fn connect(&self, dialer: &Dialer) -> Result<Wire, Unreachable> {
        let (sentinels, service, login) = match self {
            Self::Fixed(address) => return dialer.connect(address).await,
            Self::Sentinel { sentinels, service, login } => (sentinels, service, login),
        };
        let answers = sentinels.iter().map(|sentinel| ask(dialer, sentinel, service, login));
        let primary = vote::most(answers, sentinels.len()).await?;
        let wire = dialer.connect(&primary).await.map_err(Unreachable::during_failover)?;
        // For a while after a failover some sentinels name a server that is none any more, or not yet.
        if is_primary(&wire, dialer).await {
            Ok(wire)
        } else {
            let message = format!("{primary} is not the primary of \"{service}\" at the moment");
            Err(Unreachable::new(message).during_failover())
        }
    }
}

async fn is_primary(wire: &Wire, dialer: &Dialer) -> bool {
    let until = Instant::now() + dialer.target().timeout;
    match wire.send(&cmd("ROLE"), until).await {
        Ok(Value::Array(role)) => role.first().is_some_and(|word| text(word).as_deref() == Some("master")),
        _ => false,
    }
}

async fn ask(
    dialer: &Dialer,
    sentinel: &Address,
    service: &str,
    login: &Login,
) -> Result<Address, Unreachable> {
    let mut connection = dialer.connect_sentinel(sentinel, login).await?;
    let mut question = cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let until = Instant::now() + dialer.target().timeout;
    let answer = timeout_at(until, connection.send_packed_command(&question)).await;
    let answer =
        answer.map_err(|_| Unreachable::new(format!("sentinel {sentinel} did not answer in time")))?;
    match answer.map_err(|error| Unreachable::connecting(&error, sentinel))? {
        Value::Array(place) => match place.iter().map(text).collect::<Option<Vec<_>>>().as_deref() {
            Some([host, port]) => port
                .parse()
                .map(|port| Address::Tcp(host.clone(), port))
                .map_err(|_| Unreachable::new(format!("sentinel {sentinel} answered no port"))),
            _ => Err(Unreachable::new(format!("sentinel {sentinel} answered something unknown"))),
        },
        Value::Nil => Err(Unreachable::new(format!(
            "sentinel {sentinel} watches no service \"{service}\": check the URL"
        ))),
        Value::ServerError(error) if error.details().is_some_and(|why| why.contains("unknown command")) => {
            Err(Unreachable::new(format!("{sentinel} is no sentinel: check the URL")))
        }
        Value::ServerError(error) => Err(Unreachable::refused(&error, sentinel)),
        _ => Err(Unreachable::new(format!("{sentinel} is no sentinel: check the URL"))),
    }
}

/// A value as text.
pub(super) fn text(value: &Value) -> Option<String> {
    String::from_redis_value_ref(value).ok()
}
