//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use leasehold_core::url::Login;
use leasehold_core::url::{self, About, TlsFiles, Url};
use leasehold_core::{Error, Result};

pub(crate) const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What URLs are about here.
pub(crate) const ABOUT: About = About {
    store: "redis",
    forms: "write it like redis://host:6379/0, redis+sentinel://host1,host2/service, \
            redis+cluster://host1,host2 or redis+unix:///path/redis.sock",
};

/// Everything that a URL may say, for those who misspelt it.
const KNOWN: &str = "known are min_replicas, timeout, connect_timeout, cacert, cert and key (with rediss), \
                     sentinel_user and sentinel_password (with +sentinel), db (with +unix)";

/// Where one server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Address {
    /// What `host:port` names.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self> {
        url::Address::parse(ABOUT, text, default_port).map(Self::from)
    }
}

impl From<url::Address> for Address {
    fn from(url::Address { host, port }: url::Address) -> Self {
        Self::Tcp(host, port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How the servers belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Single(Address),
    Sentinel { sentinels: Vec<Address>, service: String, login: Login },
    Cluster { seeds: Vec<Address> },
}

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) topology: Topology,
    pub(crate) login: Login,
    pub(crate) db: i64,
    pub(crate) tls: Option<TlsFiles>,
    /// How many replicas must have acknowledged a grant.
    pub(crate) min_replicas: u32,
    /// The longest that one call takes.
    pub(crate) timeout: Duration,
    /// The longest that connecting takes, with TLS and logging in.
    pub(crate) connect_timeout: Duration,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let mut url = Url::parse(ABOUT, url)?;
        url.needs_password_with_user()?;
        let scheme = std::mem::take(&mut url.scheme);
        let (encrypted, kind) = match scheme.strip_prefix("rediss").or_else(|| scheme.strip_prefix("redis")) {
            Some(kind) => (scheme.starts_with("rediss"), kind),
            None => return Err(invalid(ABOUT.forms)),
        };
        let (topology, db) = match kind {
            "" => single(&url)?,
            "+unix" if !encrypted => socket(&mut url)?,
            "+unix" => return Err(invalid("a socket needs no TLS: redis+unix:///path/redis.sock")),
            "+sentinel" => sentinel(&mut url)?,
            "+cluster" => cluster(&url)?,
            _ => return Err(invalid(ABOUT.forms)),
        };
        let Url { login, mut query, .. } = url;
        let target = Self {
            topology,
            login,
            db,
            tls: encrypted.then(|| query.tls_files()).transpose()?,
            min_replicas: query.number("min_replicas")?.unwrap_or(0),
            timeout: query.duration("timeout")?.unwrap_or(Duration::from_secs(1)),
            connect_timeout: query.duration("connect_timeout")?.unwrap_or(Duration::from_secs(1)),
        };
        query.done(KNOWN)?;
        Ok(target)
    }
}

fn single(url: &Url) -> Result<(Topology, i64)> {
    let Ok([address]) = <[_; 1]>::try_from(tcp(url, PORT)?) else {
        return Err(invalid("several hosts: use redis+sentinel:// or redis+cluster://"));
    };
    Ok((Topology::Single(address), database(url.path.strip_prefix('/'))?))
}

fn socket(url: &mut Url) -> Result<(Topology, i64)> {
    if !url.has_no_host() || url.path.len() < 2 {
        return Err(invalid("a socket is a path: redis+unix:///path/redis.sock"));
    }
    let path = ABOUT.decode(&url.path)?.into();
    Ok((Topology::Single(Address::Unix(path)), database(url.query.take("db").as_deref())?))
}

fn sentinel(url: &mut Url) -> Result<(Topology, i64)> {
    let mut path = url.segments()?.into_iter();
    let Some(service) = path.next() else {
        return Err(invalid("no service named: redis+sentinel://host1,host2/service"));
    };
    let db = database(path.next().as_deref())?;
    let query = &mut url.query;
    let login = Login { user: query.take("sentinel_user"), password: query.take("sentinel_password") };
    Ok((Topology::Sentinel { sentinels: tcp(url, SENTINEL_PORT)?, service, login }, db))
}

fn cluster(url: &Url) -> Result<(Topology, i64)> {
    if !matches!(url.path.as_str(), "" | "/" | "/0") {
        return Err(invalid("a cluster has only database 0: end the URL after the hosts"));
    }
    Ok((Topology::Cluster { seeds: tcp(url, PORT)? }, 0))
}

fn tcp(url: &Url, port: u16) -> Result<Vec<Address>> {
    Ok(url.addresses(port)?.into_iter().map(Address::from).collect())
}

fn database(text: Option<&str>) -> Result<i64> {
    match text {
        None | Some("") => Ok(0),
        Some(text) => text.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
            invalid(format!("\"{}\" is no database: use a number like 0", text.escape_debug()))
        }),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    ABOUT.invalid(message)
}

#[cfg(test)]
mod tests;
