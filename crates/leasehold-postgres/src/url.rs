//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::url::{About, Address, Query, TlsFiles, Url};
use leasehold_sql::Mode;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use crate::names::{SCHEMA, check_schema};

const PORT: u16 = 5432;

const ABOUT: About =
    About { store: "postgres", forms: "write it like postgres://user:password@host:5432/database" };

const KNOWN: &str = "known are schema, mode, timeout, connect_timeout, connections, host, port, sslmode, sslrootcert, \
                     sslcert and sslkey";

/// How many connections a store makes at most, besides the one that listens.
const CONNECTIONS: usize = 8;

/// Everything that a URL says.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Where the servers are: a host's name, or the directory of a socket.
    pub(crate) servers: Vec<Address>,
    /// As whom to connect; without a server, and without the settings that a session of ours has.
    config: Config,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) schema: String,
    pub(crate) mode: Mode,
    /// The longest that one call takes.
    pub(crate) timeout: Duration,
    /// The longest that connecting takes, with TLS and logging in.
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: usize,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let mut url = Url::parse(ABOUT, url)?;
        let query = &mut url.query;
        let schema = query.take("schema").unwrap_or_else(|| SCHEMA.to_owned());
        check_schema(&schema)?;
        let mode = Mode::parse(ABOUT, query)?;
        let tls = tls(query)?;
        let timeout = query.duration("timeout")?.unwrap_or(Duration::from_secs(2));
        let connect_timeout = query.duration("connect_timeout")?.unwrap_or(Duration::from_secs(2));
        let connections = query.number("connections")?.unwrap_or(CONNECTIONS);
        if !(1..=100).contains(&connections) {
            return Err(ABOUT.invalid("connections is not from 1 to 100: write connections=8"));
        }
        let (socket, port) = (query.take("host"), query.number("port")?.unwrap_or(PORT));

        let servers = match socket {
            Some(host) => vec![Address { host, port }],
            None => url.addresses(port)?,
        };
        let mut config = Config::new();
        config.user(url.login.user.as_deref().unwrap_or("postgres"));
        if let Some(password) = &url.login.password {
            config.password(password);
        }
        match url.segments()?.as_slice() {
            [] => {}
            [database] => {
                config.dbname(database);
            }
            _ => return Err(ABOUT.invalid(ABOUT.forms)),
        }
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        config.connect_timeout(connect_timeout).keepalives(true).keepalives_idle(Duration::from_secs(10));
        config.application_name("leasehold");
        if servers.len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        url.query.done(KNOWN)?;
        Ok(Self { servers, config, tls, schema, mode, timeout, connect_timeout, connections })
    }

    /// A connection without settings of its own: what a pooler accepts.
    pub(crate) fn bare(&self) -> &Config {
        &self.config
    }

    /// A connection with our settings. Whether they arrived can be seen from `leasehold_store.direct`.
    pub(crate) fn direct(&self) -> Config {
        let millis = self.patience().as_millis();
        self.with(&format!("-c idle_in_transaction_session_timeout={millis}"))
    }

    /// A connection that the server ends, with everything that it holds, when it was silent for this long.
    pub(crate) fn pinned(&self, silence: Duration) -> Config {
        let millis = silence.as_millis();
        let ends = match self.mode {
            Mode::RowLock => format!("-c idle_in_transaction_session_timeout={millis}"),
            _ => format!("-c idle_session_timeout={millis} -c idle_in_transaction_session_timeout=0"),
        };
        // Its locks end with the server: nothing that it commits has to survive.
        self.with(&format!("-c synchronous_commit=off {ends}"))
    }

    fn with(&self, more: &str) -> Config {
        let (mut config, millis) = (self.config.clone(), self.patience().as_millis());
        // Names without a schema are the server's own, never those of another user. The last three: each statement is planned
        // once, by its keys, whatever the tables looked like when they were last vacuumed, and never compiled. A plan that was
        // made for an empty table would read all of a full one.
        config.options(format!(
            "-c leasehold_store.direct=1 -c search_path=pg_catalog,pg_temp -c default_transaction_isolation=read\\ committed \
             -c default_transaction_read_only=off -c default_transaction_deferrable=off -c statement_timeout={millis} \
             -c lock_timeout=0 {more} -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"
        ));
        config
    }

    /// A statement that waits for a row ends at the server too, a little before its caller gives up: then both know
    /// that it did not happen.
    fn patience(&self) -> Duration {
        self.timeout.mul_f32(0.8)
    }

    /// The longest that a connection takes if the server that is tried last is the one that serves.
    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_timeout * u32::try_from(self.servers.len()).unwrap_or(1)
    }

    /// Where the servers are, for messages.
    pub(crate) fn place(&self) -> String {
        self.servers.iter().map(place_of).collect::<Vec<_>>().join(", ")
    }
}

/// Where a server is, for messages.
pub(crate) fn place_of(server: &Address) -> String {
    if server.host.starts_with('/') { server.host.clone() } else { server.to_string() }
}

/// libpq's parameters for TLS. There is no encryption without verification here.
fn tls(query: &mut Query) -> Result<Option<TlsFiles>> {
    let mut file = |name| query.take(name).map(PathBuf::from);
    let files = TlsFiles { ca: file("sslrootcert"), certificate: file("sslcert"), key: file("sslkey") };
    if files.certificate.is_some() != files.key.is_some() {
        return Err(ABOUT.invalid("a client certificate needs both sslcert=FILE and sslkey=FILE"));
    }
    match query.take("sslmode").as_deref() {
        Some("require" | "verify-ca" | "verify-full") => Ok(Some(files)),
        None | Some("disable") if files == TlsFiles::default() => Ok(None),
        None | Some("disable") => Err(ABOUT.invalid("certificates without TLS: add sslmode=verify-full")),
        Some(_) => Err(ABOUT.invalid("sslmode protects nothing like that: write verify-full or disable")),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

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
            "postgres://h/d/e",
        ] {
            refused(url);
        }
    }
}
