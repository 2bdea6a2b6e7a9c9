//! The parameters of a URL. Each is taken once, and what nobody takes is refused: a misspelt safety option must not
//! be ignored.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{About, shown};
use crate::error::Result;

/// The parameters that nobody took yet.
#[derive(Debug)]
pub struct Query {
    about: About,
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Reads `name=value&name=value`.
    ///
    /// # Errors
    /// `Invalid` when one has no value, or is given twice.
    pub fn parse(about: About, text: &str) -> Result<Self> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let no_value = || about.invalid(format!("parameter \"{}\" has no value", shown(pair)));
            let (name, value) = pair.split_once('=').ok_or_else(no_value)?;
            if pairs.iter().any(|(known, _)| known == name) {
                return Err(about.invalid(format!("parameter \"{}\" is given twice", shown(name))));
            }
            pairs.push((name.to_owned(), about.decode(value)?));
        }
        Ok(Self { about, pairs })
    }

    /// A parameter's text.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.pairs.iter().position(|(known, _)| known == name)?;
        Some(self.pairs.remove(at).1)
    }

    /// A parameter that is a number.
    ///
    /// # Errors
    /// `Invalid` when it is none.
    pub fn number<N: FromStr>(&mut self, name: &str) -> Result<Option<N>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let number = text.parse();
        number.map(Some).map_err(|_| self.about.invalid(format!("{name} is no number: write {name}=1")))
    }

    /// A parameter that is a time, in `ms` or `s`, and not zero.
    ///
    /// # Errors
    /// `Invalid` when it is none.
    pub fn duration(&mut self, name: &str) -> Result<Option<Duration>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let millis = match (number.parse::<u32>(), unit) {
            (Ok(n), "ms") => u64::from(n),
            (Ok(n), "s") => u64::from(n) * 1000,
            _ => 0,
        };
        if millis == 0 {
            return Err(self.about.invalid(format!("{name} is no time: write {name}=500ms or {name}=2s")));
        }
        Ok(Some(Duration::from_millis(millis)))
    }

    /// A parameter that is `on` or `off`.
    ///
    /// # Errors
    /// `Invalid` when it is neither.
    pub fn switch(&mut self, name: &str) -> Result<Option<bool>> {
        match self.take(name).as_deref() {
            None => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(_) => Err(self.about.invalid(format!("{name} is on or off"))),
        }
    }

    /// The files for TLS: `cacert`, `cert` and `key`.
    ///
    /// # Errors
    /// `Invalid` for half of a client certificate.
    pub fn tls_files(&mut self) -> Result<TlsFiles> {
        let mut file = |name| self.take(name).map(PathBuf::from);
        let files = TlsFiles { ca: file("cacert"), certificate: file("cert"), key: file("key") };
        if files.certificate.is_some() != files.key.is_some() {
            return Err(self.about.invalid("a client certificate needs both cert=FILE and key=FILE"));
        }
        Ok(files)
    }

    /// Refuses what nobody took. `known` says what there is, as in `known are timeout and db`.
    ///
    /// # Errors
    /// `Invalid` when something is left.
    pub fn done(self, known: &str) -> Result<()> {
        let Some((name, _)) = self.pairs.first() else { return Ok(()) };
        Err(self.about.invalid(format!("unknown parameter \"{}\": {known}", shown(name))))
    }
}

/// The files that a URL names for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who may sign the server's certificate; the system's list when none is named.
    pub ca: Option<PathBuf>,
    /// Our own certificate, if the server wants one.
    pub certificate: Option<PathBuf>,
    /// The key of our certificate.
    pub key: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(About { store: "test", forms: "" }, text).unwrap()
    }

    #[test]
    fn what_is_taken_is_read_and_the_rest_refused() {
        let mut all = query("n=3&t=20ms&s=off&left=%41");
        assert_eq!(all.number::<u32>("n").unwrap(), Some(3));
        assert_eq!(all.duration("t").unwrap(), Some(Duration::from_millis(20)));
        assert_eq!(all.switch("s").unwrap(), Some(false));
        assert_eq!(all.take("missing"), None);
        let error = all.done("known are n, t and s").unwrap_err().to_string();
        assert!(error.contains("left") && error.contains("known are"), "{error}");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused_and_says_what_to_write() {
        for bad in ["0s", "5", "s", "1h", "-1s", "99999999999s", "1.5s"] {
            let error = query(&format!("t={bad}")).duration("t").unwrap_err().to_string();
            assert!(error.contains("t=500ms"), "{bad}: {error}");
        }
        assert!(query("n=x").number::<u32>("n").is_err());
        assert!(query("s=yes").switch("s").is_err());
        assert!(Query::parse(About { store: "test", forms: "" }, "a").is_err());
    }

    #[test]
    fn half_a_client_certificate_is_refused() {
        assert!(query("cert=a").tls_files().is_err());
        assert!(query("cert=a&key=b&cacert=c").tls_files().is_ok());
    }
}
