//! TLS: always verified, with the system's certificates or a given one, and client certificates.

use std::path::{Path, PathBuf};

use leasehold_core::{Error, ErrorKind, Result};
use redis::{ClientTlsConfig, TlsCertificates};

/// The files that a URL names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Who may sign the server's certificate; the system's list when none is named.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl Tls {
    /// Refuses half of a client certificate.
    pub(crate) fn check(&self) -> Result<()> {
        if self.certificate.is_some() == self.key.is_some() {
            return Ok(());
        }
        let message = "a client certificate needs both cert=FILE and key=FILE";
        Err(Error::new(ErrorKind::Invalid, message).at("redis"))
    }

    /// The contents of the files: read at every connect, because certificates are renewed in place.
    pub(crate) fn read(&self) -> Result<TlsCertificates> {
        choose_provider();
        let client_tls = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
            _ => None,
        };
        let root_cert = self.ca.as_deref().map(read).transpose()?;
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

/// rustls panics when a program links two providers and chose none.
fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Losing this race means that somebody else chose.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|cause| {
        let message = format!("cannot read {}: check the URL and the file's rights", path.display());
        Error::new(ErrorKind::Invalid, message).at("redis").because(cause)
    })
}
