//! What it means when a server refuses, fails or says nothing.

use std::error::Error as _;
use std::sync::Arc;

use leasehold_core::{Check, Error, ErrorKind};
use redis::{RedisError, ServerError};

use crate::url::Address;

/// What a server's refusal means.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It does not know the script: it did not run.
    NoScript,
    /// Another server has the slot from now on: it did not run.
    Moved(Address),
    /// Another server has this key while its slot is being moved: it did not run.
    Ask(Address),
    /// It did not run, but may in a moment, here or on another server; the error is for when time is over.
    NotNow(Error),
    /// It did not run, and trying again does not help.
    Final(Error),
}

/// Codes that can stand inside the message of a failed script, before Redis 7.
const INSIDE: &[&str] = &["WRONGTYPE", "OOM", "READONLY", "NOPERM", "NOREPLICAS", "MISCONF"];

/// What a script is told that needs a right which its user lacks: by Redis 7.0, and by Valkey and later versions.
const DENIED: &[&str] = &["user executing the script can't", "ACL failure in script"];

/// The source of a moving slot says this when a script needs a key that it does not have. A script looks for such keys
/// before it changes a lock, so the request has changed nothing.
const NOT_LOCAL: &str = "attempted to access a non local key";

impl Refusal {
    /// What the server at `from` means, if it was a server that said it.
    pub(crate) fn of_error(error: &RedisError, from: &Address) -> Option<Self> {
        let errors = error.clone().into_server_errors()?;
        errors.first().map(|(_, error)| Self::of(error, from))
    }

    /// What the server at `from` means.
    pub(crate) fn of(error: &ServerError, from: &Address) -> Self {
        let details = error.details().unwrap_or_default();
        let code = match error.code() {
            "ERR" if DENIED.iter().any(|why| details.contains(why)) => "NOPERM",
            "ERR" => INSIDE.iter().find(|code| details.contains(**code)).copied().unwrap_or("ERR"),
            code => code,
        };
        let not_now = |message: &str| Self::NotNow(told(ErrorKind::Unavailable, message, error));
        // What a failover or a start brings about.
        let not_yet =
            |message: &str| Self::NotNow(told(ErrorKind::Unavailable, message, error).transient_if(true));
        let last = |kind, message: &str| Self::Final(told(kind, message, error));
        match code {
            "NOSCRIPT" => Self::NoScript,
            "MOVED" | "ASK" => match (redirect(details, from), code) {
                (Some(to), "MOVED") => Self::Moved(to),
                (Some(to), _) => Self::Ask(to),
                (None, _) => not_now("the cluster is changing: try again in a moment"),
            },
            "READONLY" => not_yet("the server is a replica: name the primary, or use redis+sentinel://"),
            "LOADING" => not_yet("the server is loading its data: try again in a moment"),
            "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => {
                not_yet("the cluster has no server for this key: try again when it is whole")
            }
            "BUSY" => not_now("the server is busy with somebody's script: try again when it is done"),
            "NOREPLICAS" => not_yet("the server has too few replicas to accept writes: start them"),
            "MISCONF" => not_now("the server cannot write to its disk and refuses writes: mend that first"),
            "OOM" => last(
                ErrorKind::Unavailable,
                "the server is out of memory: raise maxmemory, or remove what is not needed",
            ),
            "WRONGTYPE" => last(
                ErrorKind::Conflict,
                "something that is not a lock is stored under this name: choose another name",
            ),
            "NOAUTH" | "WRONGPASS" => last(
                ErrorKind::Denied,
                "the server refused user or password: put the right ones into the URL",
            ),
            "ERR" if details.contains(NOT_LOCAL) => {
                not_now("the key's slot is being moved: try again in a moment")
            }
            "ERR" if details.contains("cluster support disabled") => {
                last(ErrorKind::Invalid, "the server is not part of a cluster: use redis://")
            }
            "NOPERM" => last(
                ErrorKind::Denied,
                "this user lacks a right: give it the rights that the store's documentation lists",
            ),
            _ => last(ErrorKind::Protocol, "the server answered something that this version does not know"),
        }
    }
}

/// The server that a redirection names: `slot host:port`. Without a host it is the one that answered.
fn redirect(details: &str, from: &Address) -> Option<Address> {
    let place = details.split_whitespace().nth(1)?;
    let (host, port) = place.rsplit_once(':')?;
    match from {
        Address::Tcp(same, _) if host.is_empty() => Some(Address::Tcp(same.clone(), port.parse().ok()?)),
        // Servers print IPv6 without brackets.
        _ if host.contains(':') => Some(Address::Tcp(host.to_owned(), port.parse().ok()?)),
        _ => Address::parse(place, 0).ok(),
    }
}

fn told(kind: ErrorKind, message: &str, cause: &ServerError) -> Error {
    Error::new(kind, message).at("redis").because(RedisError::from(cause.clone()))
}

/// Why a connection could not be made: it can be told to many.
#[derive(Clone, Debug)]
pub(crate) struct Unreachable {
    kind: ErrorKind,
    /// The servers that it is about; empty if it is about none.
    places: String,
    message: String,
    is_transient: bool,
}

impl Unreachable {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        let (places, is_transient) = (String::new(), false);
        Self { kind: ErrorKind::Unavailable, places, message: message.into(), is_transient }
    }

    /// What happened while connecting to `address`.
    pub(crate) fn connecting(error: &RedisError, address: &Address) -> Self {
        let (kind, message) = if error.kind() == redis::ErrorKind::RESP3NotSupported {
            (ErrorKind::Unsupported, "the server is too old: use Redis 6.2 or newer, or Valkey")
        } else if is_denied(error) {
            (ErrorKind::Denied, "the server refused user or password: put the right ones into the URL")
        } else if is_certificate(error) {
            (ErrorKind::Denied, "the certificates do not match: check cacert, cert, key and the host's name")
        } else if error.is_timeout() {
            (ErrorKind::Unavailable, "no answer in time: check that the server runs and can be reached")
        } else {
            (ErrorKind::Unavailable, "cannot connect: check that the server runs and can be reached")
        };
        Self { kind, places: address.to_string(), ..Self::new(format!("{message}: {error}")) }
    }

    /// A server whose setting makes locks meaningless.
    pub(crate) fn unfit(check: &Check, address: &Address) -> Self {
        Self { kind: ErrorKind::Invalid, places: address.to_string(), ..Self::new(check.to_string()) }
    }

    /// What a server refused that we asked while looking for the right one.
    pub(crate) fn refused(error: &ServerError, by: &Address) -> Self {
        match Refusal::of(error, by) {
            Refusal::Final(error) | Refusal::NotNow(error) => Self::from(error),
            _ => Self::new(format!("{by} answered something unknown")),
        }
    }

    /// Whether somebody must change something before it can work.
    pub(crate) fn is_final(&self) -> bool {
        self.kind != ErrorKind::Unavailable
    }

    /// Other servers of the same store have answered, so this is a failover unless somebody must change something.
    pub(crate) fn during_failover(self) -> Self {
        Self { is_transient: self.is_transient || !self.is_final(), ..self }
    }

    /// Of two reasons the one that says more: what somebody must change, then who answered. The same reason names both
    /// servers.
    pub(crate) fn or(self, other: Self) -> Self {
        let rank = |why: &Self| (why.is_final(), why.is_transient);
        if (self.kind, &self.message) == (other.kind, &other.message) && !self.places.is_empty() {
            return Self { places: format!("{}, {}", self.places, other.places), ..self };
        }
        if rank(&other) > rank(&self) { other } else { self }
    }

    pub(crate) fn to_error(&self) -> Error {
        let message = match self.places.as_str() {
            "" => self.message.clone(),
            places => format!("{places}: {}", self.message),
        };
        Error::new(self.kind, message).at("redis").transient_if(self.is_transient)
    }
}

impl From<Error> for Unreachable {
    fn from(error: Error) -> Self {
        // Nothing was asked that could have changed anything.
        let kind = if error.is_retryable() { ErrorKind::Unavailable } else { error.kind() };
        let message = error.to_string();
        let message = message.strip_prefix("redis: ").unwrap_or(&message);
        Self { kind, is_transient: error.is_transient(), ..Self::new(message) }
    }
}

fn is_denied(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
}

fn is_certificate(error: &RedisError) -> bool {
    // The client wraps the cause once more than its type says.
    let cause =
        error.source().and_then(|cause| cause.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>());
    let cause =
        cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()).and_then(std::io::Error::get_ref);
    cause.is_some_and(|cause| cause.is::<rustls::Error>())
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Silence {
    /// It was never sent.
    Unsent,
    /// Not within the time of the call.
    Late,
    /// The connection ended, or what came was no reply.
    Broken(RedisError),
    /// It ran, but too few replicas have it.
    NotAcknowledged { by: i64, wanted: u32 },
    /// It ran, but the server refused to say how many replicas have it.
    Unconfirmed(ServerError),
}

impl Silence {
    /// The same for another request of the same pipeline.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Unsent => Self::Unsent,
            Self::Late => Self::Late,
            Self::Broken(cause) => Self::Broken(cause.clone()),
            Self::NotAcknowledged { by, wanted } => Self::NotAcknowledged { by: *by, wanted: *wanted },
            Self::Unconfirmed(cause) => Self::Unconfirmed(cause.clone()),
        }
    }

    pub(crate) fn into_error(self) -> Error {
        let unknown = |message: &str| Error::new(ErrorKind::Indeterminate, message).at("redis");
        match self {
            Self::Unsent => Unreachable::new("the connection ended: nothing was sent").to_error(),
            Self::Late => unknown("no answer in time: it may have happened"),
            Self::Broken(cause) => {
                unknown("the connection broke before the answer: it may have happened").because(cause)
            }
            Self::NotAcknowledged { by, wanted } => unknown(&format!(
                "only {by} of {wanted} replicas have it: start the replicas, or lower min_replicas"
            )),
            Self::Unconfirmed(cause) if cause.code() == "NOPERM" => {
                told(ErrorKind::Denied, "this user lacks a right: min_replicas needs +wait", &cause)
            }
            Self::Unconfirmed(cause) => {
                unknown("the server did not say which replicas have it").because(RedisError::from(cause))
            }
        }
    }
}
