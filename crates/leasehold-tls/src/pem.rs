//! The same settings as text, for drivers that make their own of it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold_core::Result;
use leasehold_core::url::TlsFiles;
use rustls::pki_types::CertificateDer;

use crate::{build, certificates, choose_provider, found, unusable};

/// What the files say. Shows no key.
#[derive(Clone)]
pub struct Pem {
    /// The certificates of those who may sign the server's.
    pub trusted: String,
    /// Our own certificate and its key.
    pub identity: Option<(String, String)>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.identity.as_ref().map(|_| "***");
        f.debug_struct("Pem").field("trusted", &self.trusted).field("identity", &identity).finish()
    }
}

/// What the files say, as text, and [chooses the provider](choose_provider). Ask again at every connect.
///
/// # Errors
/// As [`client_config`](crate::client_config).
pub fn pem(store: &'static str, files: &TlsFiles) -> Result<Pem> {
    choose_provider();
    read(files).map_err(|error| error.at(store))
}

fn read(files: &TlsFiles) -> Result<Pem> {
    // Whatever is wrong with the files is found here, and not by the driver.
    build(files)?;
    let identity = match (&files.certificate, &files.key) {
        (Some(file), Some(key)) => {
            let secret = std::fs::read_to_string(key).map_err(|cause| unusable(key).because(cause))?;
            Some((text(&certificates(file)?), secret))
        }
        _ => None,
    };
    Ok(Pem { trusted: text(&found(files)?), identity })
}

fn text(certificates: &[CertificateDer<'_>]) -> String {
    let one = |certificate: &CertificateDer<'_>| {
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(certificate))
    };
    certificates.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let all: Vec<CertificateDer<'_>> = [vec![1; 100], vec![2; 1]].map(CertificateDer::from).into();
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text(&all).as_bytes()).collect();
        assert_eq!(read.unwrap(), all);
    }

    #[test]
    fn a_key_is_not_shown() {
        let pem = Pem { trusted: String::new(), identity: Some(("c".into(), "hunter2".into())) };
        assert!(!format!("{pem:?}").contains("hunter2"));
    }
}
