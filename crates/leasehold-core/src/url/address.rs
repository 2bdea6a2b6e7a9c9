//! Where a server is.

use std::fmt;

use super::{About, shown};
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
        let (host, port, is_v6) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None, true),
            // Without the colon it is no port, and the bracket makes the message say so.
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("]")), true),
            None => {
                text.split_once(':').map_or((text, None, false), |(host, port)| (host, Some(port), false))
            }
        };
        let host = about.decode(host)?;
        if host.is_empty() {
            return Err(about.malformed());
        }
        if is_v6 && host.parse::<std::net::Ipv6Addr>().is_err()
            || !is_v6 && host.contains(is_no_part_of_a_host)
        {
            return Err(about.invalid(format!("\"{}\" is no host: {}", shown(&host), about.forms)));
        }
        let no_port = |port: &str| {
            let port = shown(port);
            about.invalid(format!(
                "\"{port}\" is no port: write host:{default_port}, and [::1]:{default_port} for IPv6"
            ))
        };
        // Not "+1", which is a number; and at port 0 nobody listens.
        let number =
            |port: &str| port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse().ok()).flatten();
        let port = port.map_or(Some(default_port), number).filter(|&port| port != 0);
        let port = port.ok_or_else(|| no_port(text.rsplit_once(':').map_or("", |(_, port)| port)))?;
        Ok(Self { host, port })
    }
}

/// Names of hosts are short of rules; what separates the parts of a URL, or cannot be seen, is in none.
fn is_no_part_of_a_host(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "#?/\\@[]<>\"'{}|^`:,&=;".contains(c)
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
    fn a_host_that_is_none_is_refused() {
        for text in ["", ":1", "a b", "a#b", "a%0ab", "a%00", "[a]", "[::1", "[]", "a\\b", "%2f", "a%40b"] {
            let refused = Address::parse(ABOUT, text, 5);
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
    }

    #[test]
    fn a_port_that_is_none_is_refused() {
        for text in ["h:", "h:x", "h:70000", "::1", "[::1]1", "[::1]:", "h:-1", "h:+1", "h:0", "h:1:2"] {
            let refused = Address::parse(ABOUT, text, 5);
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
    }
}
