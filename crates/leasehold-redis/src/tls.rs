//! TLS as the driver wants it: the files' contents.

use std::path::Path;

use leasehold_core::url::TlsFiles;
use leasehold_core::{Error, ErrorKind, Result};
use leasehold_tls::choose_provider;
use redis::{ClientTlsConfig, TlsCertificates};

/// The contents of the files: read at every connect, because certificates are renewed in place.
pub(crate) fn read(files: &TlsFiles) -> Result<TlsCertificates> {
    choose_provider();
    let client_tls = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            Some(ClientTlsConfig { client_cert: contents(certificate)?, client_key: contents(key)? })
        }
        _ => None,
    };
    let root_cert = files.ca.as_deref().map(contents).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

fn contents(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|cause| {
        let message = format!("cannot read {}: check the URL and the file's rights", path.display());
        Error::new(ErrorKind::Invalid, message).at("redis").because(cause)
    })
}
