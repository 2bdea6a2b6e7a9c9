//! Where a server is.

use std::fmt;

use super::About;
use crate::error::Result;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or a number, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// What `host`, `host:port`, `[v6]` or `[v6]:port` names.
    ///
    /// ```
    /// use leasehold_core::url::{About, Address};
    /// let about = About { store: "redis", forms: "write it like redis://host" };
    /// assert_eq!(Address::parse(about, "[::1]", 6379)?.to_string(), "[::1]:6379");
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` when the host is empty or the port is none.
    pub fn parse(about: About, text: &str, default_port: u16) -> Result<Self> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err(about.malformed());
        }
        let no_port = |port: &str| {
            let port = port.escape_debug();
            about.invalid(format!(
                "\"{port}\" is no port: write host:{default_port}, and [::1]:{default_port} for IPv6"
            ))
        };
        let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| no_port(port)))?;
        Ok(Self { host: about.decode(host)?, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About { store: "test", forms: "write it like test://host" };

    #[test]
    fn hosts_and_ports_are_told_apart() {
        for (text, shown) in
            [("h", "h:5"), ("h:1", "h:1"), ("[::1]", "[::1]:5"), ("[::1]:1", "[::1]:1"), ("%68", "h:5")]
        {
            assert_eq!(Address::parse(ABOUT, text, 5).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_port_that_is_none_is_refused() {
        for text in ["h:", "h:x", "h:70000", "::1", "[::1]1x", "h:-1"] {
            let refused = Address::parse(ABOUT, text, 5);
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
    }
}
