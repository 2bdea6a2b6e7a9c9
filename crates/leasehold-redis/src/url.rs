//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};

use crate::tls::Tls;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The forms that a URL can have: said whenever one is wrong.
const FORMS: &str = "write it like redis://host:6379/0, redis+sentinel://host1,host2/service, \
                     redis+cluster://host1,host2 or redis+unix:///path/redis.sock";

/// Where one server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
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

/// Who we are to a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("Login").field("user", &self.user).field("password", &password).finish()
    }
}

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) topology: Topology,
    pub(crate) login: Login,
    pub(crate) db: i64,
    pub(crate) tls: Option<Tls>,
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
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid(FORMS))?;
        let scheme = scheme.to_ascii_lowercase();
        let (encrypted, kind) = match scheme.strip_prefix("rediss").or_else(|| scheme.strip_prefix("redis")) {
            Some(kind) => (scheme.starts_with("rediss"), kind),
            None => return Err(invalid(FORMS)),
        };
        let parts = Parts::split(rest)?;
        let mut query = Query::parse(parts.query)?;
        let (topology, db) = match kind {
            "" => {
                let [host] = parts.hosts.as_slice() else {
                    return Err(invalid("several hosts: use redis+sentinel:// or redis+cluster://"));
                };
                (Topology::Single(address(host, PORT)?), database(parts.path.strip_prefix('/'))?)
            }
            "+unix" if !encrypted && parts.hosts == [""] && parts.path.len() > 1 => {
                let path = decode(parts.path)?.into();
                (Topology::Single(Address::Unix(path)), database(query.take("db").as_deref())?)
            }
            "+unix" => return Err(invalid("a socket is a path: redis+unix:///path/redis.sock")),
            "+sentinel" => {
                let path = parts.path.strip_prefix('/').unwrap_or_default();
                let (service, db) = path.split_once('/').map_or((path, None), |(name, db)| (name, Some(db)));
                if service.is_empty() {
                    return Err(invalid("no service named: redis+sentinel://host1,host2/service"));
                }
                let login =
                    Login { user: query.take("sentinel_user"), password: query.take("sentinel_password") };
                let sentinels = addresses(&parts.hosts, SENTINEL_PORT)?;
                (Topology::Sentinel { sentinels, service: decode(service)?, login }, database(db)?)
            }
            "+cluster" => {
                if !matches!(parts.path, "" | "/" | "/0") {
                    return Err(invalid("a cluster has only database 0: end the URL after the hosts"));
                }
                (Topology::Cluster { seeds: addresses(&parts.hosts, PORT)? }, 0)
            }
            _ => return Err(invalid(FORMS)),
        };
        let tls = encrypted.then(|| Tls {
            ca: query.take("cacert").map(PathBuf::from),
            certificate: query.take("cert").map(PathBuf::from),
            key: query.take("key").map(PathBuf::from),
        });
        if let Some(tls) = &tls {
            tls.check()?;
        }
        let target = Self {
            topology,
            login: parts.login,
            db,
            tls,
            min_replicas: query.number("min_replicas")?.unwrap_or(0),
            timeout: query.duration("timeout")?.unwrap_or(Duration::from_secs(1)),
            connect_timeout: query.duration("connect_timeout")?.unwrap_or(Duration::from_secs(1)),
        };
        query.done()?;
        Ok(target)
    }
}

/// A URL after `scheme://`.
struct Parts<'a> {
    login: Login,
    hosts: Vec<&'a str>,
    /// With its first slash.
    path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn split(rest: &'a str) -> Result<Self> {
        // A password that is not percent-encoded may contain anything, and paths and parameters have no '@'.
        let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let some = |text: &str| if text.is_empty() { Ok(None) } else { decode(text).map(Some) };
        let login = Login { user: some(user)?, password: some(password)? };
        if login.user.is_some() && login.password.is_none() {
            return Err(invalid(
                "a user without a password: write user:password@, or :password@ without user",
            ));
        }
        Ok(Self { login, hosts: hosts.split(',').collect(), path, query })
    }
}

fn addresses(hosts: &[&str], port: u16) -> Result<Vec<Address>> {
    hosts.iter().map(|host| address(host, port)).collect()
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
pub(crate) fn address(text: &str, default_port: u16) -> Result<Address> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(invalid(FORMS));
    }
    let port = match port {
        None => default_port,
        Some(port) => port.parse().map_err(|_| {
            invalid(format!(
                "\"{}\" is no port: write host:6379, and [::1]:6379 for IPv6",
                port.escape_debug()
            ))
        })?,
    };
    Ok(Address::Tcp(decode(host)?, port))
}

fn database(text: Option<&str>) -> Result<i64> {
    match text {
        None | Some("") => Ok(0),
        Some(text) => text.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
            invalid(format!("\"{}\" is no database: use a number like 0", text.escape_debug()))
        }),
    }
}

/// The parameters that nobody took yet.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| invalid(format!("parameter \"{}\" has no value", pair.escape_debug())))?;
            pairs.push((name.to_owned(), decode(value)?));
        }
        Ok(Self(pairs))
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    fn number(&mut self, name: &str) -> Result<Option<u32>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let number = text.parse();
        number.map(Some).map_err(|_| invalid(format!("{name} is no number: write {name}=1")))
    }

    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Duration>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let millis = match (number.parse::<u32>(), unit) {
            (Ok(n), "ms") => u64::from(n),
            (Ok(n), "s") => u64::from(n) * 1000,
            _ => 0,
        };
        if millis == 0 {
            return Err(invalid(format!("{name} is no time: write {name}=500ms or {name}=2s")));
        }
        Ok(Some(Duration::from_millis(millis)))
    }

    /// Refuses what nobody took: a misspelt safety option must not be ignored.
    fn done(self) -> Result<()> {
        let Some((name, _)) = self.0.first() else { return Ok(()) };
        let known = "known are min_replicas, timeout, connect_timeout, cacert, cert and key (with rediss), \
                     sentinel_user and sentinel_password (with +sentinel), db (with +unix)";
        Err(invalid(format!("unknown parameter \"{}\": {known}", name.escape_debug())))
    }
}

/// Undoes percent encoding.
fn decode(text: &str) -> Result<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| invalid("the URL is not UTF-8 when decoded"))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message).at("redis")
}

#[cfg(test)]
mod tests;
