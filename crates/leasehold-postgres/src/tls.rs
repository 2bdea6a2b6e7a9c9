//! TLS: always verified, with the system's certificates or a given one, and client certificates.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_core::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

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
        Err(invalid("a client certificate needs both sslcert=FILE and sslkey=FILE"))
    }

    /// What makes connections: the files are read at every connect, because certificates are renewed in place.
    pub(crate) fn connector(&self) -> Result<Connector> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let trusted = versions
            .map_err(|e| invalid("TLS cannot be set up").because(e))?
            .with_root_certificates(Arc::new(self.roots()?));
        let config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let read = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, e))?;
                let chain = certificates(certificate)?;
                trusted
                    .with_client_auth_cert(chain, read)
                    .map_err(|e| invalid("sslcert and sslkey do not belong together").because(e))?
            }
            _ => trusted.with_no_client_auth(),
        };
        Ok(Connector(TlsConnector::from(Arc::new(config))))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let found = match &self.ca {
            Some(file) => certificates(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        roots.add_parsable_certificates(found);
        if roots.is_empty() {
            return Err(invalid("no certificate to trust is known: name one with sslrootcert=FILE"));
        }
        Ok(roots)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.map_err(|e| unreadable(file, e))
}

fn unreadable(file: &Path, cause: rustls::pki_types::pem::Error) -> Error {
    let message = format!("cannot read {}: check the URL and the file's rights", file.display());
    invalid(&message).because(cause)
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, message).at("postgres")
}

/// Makes encrypted streams.
#[derive(Clone)]
pub(crate) struct Connector(TlsConnector);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, Self::Error> {
        Ok(Handshake(self.0.clone(), ServerName::try_from(domain.to_owned())?))
    }
}

/// One handshake, with the server of this name.
pub(crate) struct Handshake(TlsConnector, ServerName<'static>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, stream).await.map(|inner| Stream(Box::new(inner))) })
    }
}

/// An encrypted stream.
pub(crate) struct Stream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
