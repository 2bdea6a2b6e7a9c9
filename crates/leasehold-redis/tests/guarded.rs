//! The Redis store over TLS, with a client certificate and as a user with the smallest rights that do, before the
//! suite that judges every store.

mod judged;
mod recipes;

use std::process::ExitCode;
use std::sync::Arc;

use judged::{Place, judge};
use leasehold_core::{Result, Store};
use leasehold_servers::redis::{Certificates, Redis};
use leasehold_servers::{Proxy, free_port};
use recipes::recipe;

fn main() -> ExitCode {
    judge::<Guarded>("rediss")
}

#[derive(Debug)]
struct Guarded {
    server: Redis,
    certificates: Certificates,
    port: u16,
}

impl Place for Guarded {
    fn start() -> Self {
        let (certificates, port) = (Certificates::make(), free_port());
        let file = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        let server = Redis::with(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &file(certificates.certificate("server")),
            "--tls-key-file",
            &file(certificates.key("server")),
            "--tls-ca-cert-file",
            &file(certificates.certificate("ca")),
        ]);
        assert_eq!(server.cli(&recipe("locks")), "OK");
        Self { server, certificates, port }
    }

    fn url(&self) -> String {
        let Self { certificates, port, .. } = self;
        format!(
            "rediss://locks:secret@127.0.0.1:{port}?connect_timeout=10s&cacert={}&cert={}&key={}",
            certificates.certificate("ca").display(),
            certificates.certificate("client").display(),
            certificates.key("client").display()
        )
    }

    fn store(url: &str) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(leasehold_redis::Redis::from_url(url)?))
    }

    /// The test itself comes without encryption, as somebody who may do everything.
    fn primaries(&mut self) -> Vec<u16> {
        vec![self.server.port()]
    }

    fn restart(&mut self) -> Result<(), &'static str> {
        Err("its users would be gone")
    }

    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}
