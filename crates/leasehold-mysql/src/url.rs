//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::url::{About, TlsFiles, Url};
use leasehold_sql::Mode;
use mysql_async::{Opts, OptsBuilder};

use crate::settings;
use crate::sql::{PREFIX, check_prefix};
use crate::tls;

const PORT: u16 = 3306;

const ABOUT: About =
    About { store: "mysql", forms: "write it like mysql://user:password@host:3306/database" };

const KNOWN: &str = "known are prefix, mode, timeout, connect_timeout, connections, socket, ssl-mode, ssl-ca, \
                     ssl-cert and ssl-key";

/// How many connections a store makes at most.
const CONNECTIONS: usize = 8;

/// Everything that a URL says.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) opts: Opts,
    /// Whom to trust; `None` for no TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// Where the server is, for messages.
    pub(crate) place: String,
    /// What table names start with.
    pub(crate) prefix: String,
    pub(crate) mode: Mode,
    /// The longest that one call takes.
    pub(crate) timeout: Duration,
    /// The longest that connecting takes.
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: usize,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let mut url = Url::parse(ABOUT, url)?;
        let query = &mut url.query;
        let prefix = query.take("prefix").unwrap_or_else(|| PREFIX.to_owned());
        check_prefix(&prefix)?;
        let mode = Mode::parse(ABOUT, query)?;
        let timeout = query.duration("timeout")?.unwrap_or(Duration::from_secs(2));
        let connect_timeout = query.duration("connect_timeout")?.unwrap_or(Duration::from_secs(2));
        let connections = query.number("connections")?.unwrap_or(CONNECTIONS);
        if !(1..=100).contains(&connections) {
            return Err(ABOUT.invalid("connections is not from 1 to 100: write connections=8"));
        }
        let socket = query.take("socket");
        let tls = tls::parse(ABOUT, query)?;
        if socket.is_some() && tls.is_some() {
            return Err(ABOUT.invalid("a socket of this machine needs no TLS: leave ssl-mode out"));
        }
        let segments = url.segments()?;
        let [database] = segments.as_slice() else {
            return Err(ABOUT.invalid("no database named: mysql://user:password@host:3306/database"));
        };
        // A statement that waits for a row ends at the server too, before its caller gives up where the server's seconds allow
        // it: then both know that it did not happen.
        let wait = timeout.mul_f32(0.8).as_secs().max(1);
        let mut builder = OptsBuilder::default()
            .user(url.login.user.clone())
            .pass(url.login.password.clone())
            .db_name(Some(database))
            .prefer_socket(socket.is_some())
            .socket(socket.clone())
            .tcp_nodelay(true)
            .stmt_cache_size(0)
            .setup(settings::session(wait, 28_800, seconds(timeout)));
        let place = match &socket {
            Some(path) => path.clone(),
            None => {
                let all = url.addresses(PORT)?;
                let [address] = all.as_slice() else {
                    return Err(ABOUT.invalid("several hosts: name the one that takes writes"));
                };
                builder = builder.ip_or_hostname(&address.host).tcp_port(address.port);
                address.to_string()
            }
        };
        url.query.done(KNOWN)?;
        Ok(Self { opts: builder.into(), tls, place, prefix, mode, timeout, connect_timeout, connections })
    }

    /// A connection that the server ends, with everything that it holds, when it was silent for this long. It hardly waits for a row.
    pub(crate) fn pinned(&self, silence: Duration) -> Opts {
        // Its transaction may be idle for as long as the connection may be silent: a shorter limit of the server would free
        // the lock while its guard is valid.
        OptsBuilder::from_opts(self.opts.clone()).setup(settings::session(1, seconds(silence), 0)).into()
    }
}

/// As the server counts. Never earlier than asked for.
fn seconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000_000).max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let url = "mysql://me:p%40ss@db:3307/app?prefix=my_&timeout=500ms&connections=3";
        let target = Target::parse(url).unwrap();
        assert_eq!(
            (target.place.as_str(), target.prefix.as_str(), target.connections),
            ("db:3307", "my_", 3)
        );
        assert_eq!(target.timeout, Duration::from_millis(500));
        assert_eq!(target.opts.pass(), Some("p@ss"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_is_sent() {
        for url in [
            "mysql://",
            "mysql://h",
            "mysql://h:x/d",
            "mysql://h/d?prefix=a%60b",
            "mysql://h/d?mode=magic",
            "mysql://h/d?timeout=0s",
            "mysql://h/d?connections=0",
            "mysql://h/d?conections=3",
            "mysql://a,b/d",
            "mysql://h/d?ssl-mode=preferred",
            "mysql://h/d?ssl-ca=ca.pem",
            "mysql://h/d?ssl-mode=required&ssl-cert=c.pem",
            "mysql:///d?socket=s&ssl-mode=required",
            "mysql://h/d/e",
        ] {
            assert_eq!(Target::parse(url).unwrap_err().kind(), ErrorKind::Invalid, "{url}");
        }
    }
}
