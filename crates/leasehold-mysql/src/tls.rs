//! TLS by MySQL's own parameters, as the driver wants it. There is no encryption without verification here.

use std::path::PathBuf;

use leasehold_core::Result;
use leasehold_core::url::{About, Query, TlsFiles};
use leasehold_tls::Pem;
use mysql_async::{ClientIdentity, SslOpts};

/// What a URL says about TLS; `None` where it wants none.
pub(crate) fn parse(about: About, query: &mut Query) -> Result<Option<TlsFiles>> {
    let mut file = |name| query.take(name).map(PathBuf::from);
    let files = TlsFiles { ca: file("ssl-ca"), certificate: file("ssl-cert"), key: file("ssl-key") };
    if files.certificate.is_some() != files.key.is_some() {
        return Err(about.invalid("a client certificate needs both ssl-cert=FILE and ssl-key=FILE"));
    }
    let mode = query.take("ssl-mode").map(|mode| mode.to_ascii_lowercase());
    match mode.as_deref() {
        Some("required" | "verify_ca" | "verify_identity") => Ok(Some(files)),
        None | Some("disabled") if files == TlsFiles::default() => Ok(None),
        None | Some("disabled") => {
            Err(about.invalid("certificates without TLS: add ssl-mode=verify_identity"))
        }
        Some(_) => {
            Err(about.invalid("ssl-mode protects nothing like that: write verify_identity or disabled"))
        }
    }
}

/// What the files say: read at every connect, because certificates are renewed in place.
pub(crate) fn options(files: &TlsFiles) -> Result<SslOpts> {
    let Pem { trusted, identity } = leasehold_tls::pem("mysql", files)?;
    let identity =
        identity.map(|(own, key)| ClientIdentity::new(own.into_bytes().into(), key.into_bytes().into()));
    let trusted = vec![trusted.into_bytes().into()];
    let options = SslOpts::default().with_disable_built_in_roots(true).with_root_certs(trusted);
    Ok(options.with_client_identity(identity))
}
