//! TLS for the stores: always verified, with the system's certificates or a given one, and client certificates.
//!
//! A crate of its own, so that core and the stores without a network need no cryptography.

mod pem;

pub use pem::{Pem, pem};

use std::path::Path;
use std::sync::Arc;

use leasehold_core::url::TlsFiles;
use leasehold_core::{Error, ErrorKind, Result};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// What the files say. Ask again at every connect: certificates are renewed in place.
///
/// ```
/// let trusted_by_the_system = leasehold_core::url::TlsFiles::default();
/// # if !rustls_native_certs::load_native_certs().certs.is_empty() {
/// leasehold_tls::client_config("etcd", &trusted_by_the_system)?;
/// # }
/// # Ok::<(), leasehold_core::Error>(())
/// ```
///
/// # Errors
/// `Invalid`, at this store, when a file cannot be used or nobody is trusted.
pub fn client_config(store: &'static str, files: &TlsFiles) -> Result<Arc<ClientConfig>> {
    build(files).map(Arc::new).map_err(|error| error.at(store))
}

/// Chooses the crypto provider for drivers that make their own settings: rustls panics when a program links two and
/// chose none. A choice that the program made itself stays.
pub fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // Losing this race means that somebody else chose.
        let _ = default_provider().install_default();
    }
}

fn build(files: &TlsFiles) -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| invalid("TLS cannot be set up").because(cause))?
        .with_root_certificates(trusted(files)?);
    let (Some(file), Some(key)) = (&files.certificate, &files.key) else {
        return Ok(config.with_no_client_auth());
    };
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|cause| unusable(key).because(cause))?;
    let config = config.with_client_auth_cert(certificates(file)?, secret);
    config
        .map_err(|cause| invalid("the client certificate and its key do not belong together").because(cause))
}

fn trusted(files: &TlsFiles) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found(files)?);
    if roots.is_empty() {
        return Err(match &files.ca {
            Some(file) => unusable(file),
            None => invalid("this system trusts nobody: name the certificate to trust in the URL"),
        });
    }
    Ok(roots)
}

/// The certificates of those who are trusted, as they are found.
fn found(files: &TlsFiles) -> Result<Vec<CertificateDer<'static>>> {
    match &files.ca {
        Some(file) => certificates(file),
        None => {
            let mut all = rustls_native_certs::load_native_certs().certs;
            // Systems have some that nobody can read, and drivers stumble over them.
            all.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
            Ok(all)
        }
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.map_err(|cause| unusable(file).because(cause))
}

fn unusable(file: &Path) -> Error {
    invalid(format!("cannot use {}: check the URL, the file and its rights", file.display()))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_store() {
        for files in [
            TlsFiles { ca: Some("/no/such.pem".into()), ..TlsFiles::default() },
            TlsFiles { ca: Some("/dev/null".into()), ..TlsFiles::default() },
        ] {
            let said = client_config("etcd", &files).unwrap_err().to_string();
            assert!(said.contains(".pem") || said.contains("/dev/null"), "{said}");
            assert!(said.contains("etcd"), "{said}");
        }
    }
}
