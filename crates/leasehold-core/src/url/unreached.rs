//! Servers that could not be reached.

use std::fmt::Display;

use crate::error::{Error, ErrorKind};

/// The servers of one store that could not be used, and why: for one error that names each cause once.
///
/// ```
/// use leasehold_core::url::Unreached;
/// let mut unreached = Unreached::default();
/// for address in ["one:2379", "two:2379"] {
///     unreached.add(address, "connection refused");
/// }
/// unreached.add("three:2379", "no answer within 1s");
/// let error = unreached.into_error("etcd").to_string();
/// assert!(error.ends_with("one:2379, two:2379: connection refused; three:2379: no answer within 1s"), "{error}");
/// ```
#[derive(Debug, Default)]
pub struct Unreached(Vec<Cause>);

#[derive(Debug)]
struct Cause {
    text: String,
    addresses: Vec<String>,
}

impl Unreached {
    /// Adds a server.
    pub fn add(&mut self, address: impl Display, cause: impl Display) {
        let (address, text) = (address.to_string(), cause.to_string());
        match self.0.iter_mut().find(|cause| cause.text == text) {
            Some(cause) => cause.addresses.push(address),
            None => self.0.push(Cause { text, addresses: vec![address] }),
        }
    }

    /// The error: `Unavailable`, because nothing was sent.
    pub fn into_error(self, store: &'static str) -> Error {
        let causes = self.0.iter().map(|cause| format!("{}: {}", cause.addresses.join(", "), cause.text));
        let causes = causes.collect::<Vec<_>>().join("; ");
        let message = format!("cannot connect: check that the server runs and can be reached: {causes}");
        Error::new(ErrorKind::Unavailable, message).at(store)
    }
}
