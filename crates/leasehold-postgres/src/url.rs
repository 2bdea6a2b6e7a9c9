//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::names::{SCHEMA, check_schema};
use crate::tls::Tls;

/// How many connections a store makes at most, besides the one that listens.
const CONNECTIONS: usize = 8;

/// Everything that a URL says.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Where to, as whom; without the settings that a session of ours has.
    config: Config,
    pub(crate) tls: Option<Tls>,
    pub(crate) schema: String,
    /// The longest that one call takes.
    pub(crate) timeout: Duration,
    /// The longest that connecting takes, with TLS and logging in.
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: usize,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut query = Query::parse(query)?;
        let schema = query.take("schema").unwrap_or_else(|| SCHEMA.to_owned());
        check_schema(&schema)?;
        match query.take("mode").as_deref() {
            None | Some("lease") => {}
            Some(other) => {
                let other = other.escape_debug();
                return Err(invalid(format!("there is no mode \"{other}\": write mode=lease")));
            }
        }
        let tls = query.tls()?;
        let timeout = query.duration("timeout")?.unwrap_or(Duration::from_secs(2));
        let connect_timeout = query.duration("connect_timeout")?.unwrap_or(Duration::from_secs(2));
        let connections = match query.take("connections").map(|n| n.parse()) {
            None => CONNECTIONS,
            Some(Ok(n @ 1..=100)) => n,
            Some(_) => return Err(invalid("connections is no number from 1 to 100: write connections=8")),
        };
        let (host, port) = (query.take("host"), query.take("port"));
        query.done()?;

        let mut config = Config::from_str(base).map_err(|_| {
            invalid("the URL makes no sense: write postgres://user:password@host:5432/database")
        })?;
        if let Some(host) = host {
            config.host(host);
        }
        if let Some(port) = port {
            config.port(port.parse().map_err(|_| invalid("port is no number: write port=5432"))?);
        }
        if config.get_hosts().is_empty() {
            return Err(invalid("no host: write postgres://localhost/database, or ?host=/run/postgresql"));
        }
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        config.connect_timeout(connect_timeout).keepalives(true).keepalives_idle(Duration::from_secs(10));
        if config.get_application_name().is_none() {
            config.application_name("leasehold");
        }
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Self { config, tls, schema, timeout, connect_timeout, connections })
    }

    /// A connection without settings of its own: what a pooler accepts.
    pub(crate) fn bare(&self) -> &Config {
        &self.config
    }

    /// A connection with our settings. Whether they arrived can be seen from `leasehold_store.direct`.
    pub(crate) fn direct(&self) -> Config {
        let mut config = self.config.clone();
        // A statement that waits for a row ends at the server too, a little before its caller gives up: then both
        // know that it did not happen.
        let millis = self.timeout.mul_f32(0.8).as_millis();
        config.options(format!(
            "-c leasehold_store.direct=1 -c default_transaction_isolation=read\\ committed \
             -c default_transaction_read_only=off -c default_transaction_deferrable=off -c statement_timeout={millis} \
             -c lock_timeout=0 -c idle_in_transaction_session_timeout={millis}"
        ));
        config
    }

    /// Where the server is, for messages.
    pub(crate) fn place(&self) -> String {
        let port = |at: usize| {
            let ports = self.config.get_ports();
            ports.get(at).or(ports.first()).copied().unwrap_or(5432)
        };
        let one = |(at, host): (usize, &Host)| match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(at)),
            Host::Tcp(name) => format!("{name}:{}", port(at)),
            Host::Unix(path) => path.display().to_string(),
        };
        self.config.get_hosts().iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// The parameters that nobody took yet.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Result<Self> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| invalid(format!("parameter \"{}\" has no value", pair.escape_debug())))?;
            let value = percent_encoding::percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| invalid("the URL is not UTF-8 when decoded"))?;
            pairs.push((name.to_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    fn duration(&mut self, name: &str) -> Result<Option<Duration>> {
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

    /// libpq's parameters for TLS. There is no encryption without verification here.
    fn tls(&mut self) -> Result<Option<Tls>> {
        let mut file = |name| self.take(name).map(PathBuf::from);
        let tls = Tls { ca: file("sslrootcert"), certificate: file("sslcert"), key: file("sslkey") };
        tls.check()?;
        match self.take("sslmode").as_deref() {
            Some("require" | "verify-ca" | "verify-full") => Ok(Some(tls)),
            None | Some("disable") if tls == Tls::default() => Ok(None),
            None | Some("disable") => Err(invalid("certificates without TLS: add sslmode=verify-full")),
            Some(_) => Err(invalid("sslmode protects nothing like that: write verify-full or disable")),
        }
    }

    /// Refuses what nobody took: a misspelt option must not be ignored.
    fn done(self) -> Result<()> {
        let Some((name, _)) = self.0.first() else { return Ok(()) };
        let known = "known are schema, mode, timeout, connect_timeout, connections, host, port, sslmode, sslrootcert, \
                     sslcert and sslkey";
        Err(invalid(format!("unknown parameter \"{}\": {known}", name.escape_debug())))
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message).at("postgres")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        let error = Target::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        error.to_string()
    }

    #[test]
    fn a_url_says_where_and_how() {
        let url = "postgresql://me:p%40ss@db:5433/app?schema=my_locks&timeout=500ms&connections=3";
        let target = Target::parse(url).unwrap();
        assert_eq!(target.place(), "db:5433");
        assert_eq!((target.schema.as_str(), target.connections), ("my_locks", 3));
        assert_eq!(target.timeout, Duration::from_millis(500));
        assert_eq!(target.bare().get_password(), Some(&b"p@ss"[..]));
        assert!(target.tls.is_none());
    }

    #[test]
    fn a_socket_is_a_host() {
        let target = Target::parse("postgres:///app?host=/run/postgresql").unwrap();
        assert_eq!(target.place(), "/run/postgresql");
    }

    #[test]
    fn encryption_is_always_verified() {
        assert!(Target::parse("postgres://h/d?sslmode=require").unwrap().tls.is_some());
        assert!(refused("postgres://h/d?sslmode=prefer").contains("verify-full"));
        assert!(refused("postgres://h/d?sslrootcert=/ca.pem").contains("sslmode=verify-full"));
        assert!(refused("postgres://h/d?sslmode=require&sslcert=/c.pem").contains("sslkey"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_is_sent() {
        for url in [
            "postgres://",
            "postgres://h:x/d",
            "postgres://h/d?schema=a%22b",
            "postgres://h/d?schema=public",
            "postgres://h/d?mode=magic",
            "postgres://h/d?timeout=0s",
            "postgres://h/d?connections=0",
            "postgres://h/d?conections=3",
            "postgres://h/d?timeout",
        ] {
            refused(url);
        }
    }
}
