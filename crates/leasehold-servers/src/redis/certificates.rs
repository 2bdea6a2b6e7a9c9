//! Certificates for tests: an authority, a server and a client.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// An authority of our own, and what it signed; gone when dropped.
#[derive(Debug)]
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Makes them with `openssl`.
    ///
    /// # Panics
    /// When there is no `openssl`, or it fails.
    pub fn make() -> Self {
        let certificates =
            Self { directory: tempfile::tempdir().expect("a temporary directory can be made") };
        certificates.renew();
        certificates
    }

    /// Makes all of them anew, with a new authority, in the same files.
    ///
    /// # Panics
    /// As [`make`](Self::make).
    pub fn renew(&self) {
        let directory = self.directory.path();
        make(directory, "ca", &["-addext", "basicConstraints=critical,CA:TRUE"]);
        for name in ["server", "client"] {
            let signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE"];
            make(directory, name, &[&signed[..], &["-addext", "subjectAltName=IP:127.0.0.1"]].concat());
        }
    }

    /// The certificate of `ca`, `server` or `client`.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.pem"))
    }

    /// The key of `ca`, `server` or `client`.
    pub fn key(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.key"))
    }
}

fn make(directory: &Path, name: &str, more: &[&str]) {
    let (key, certificate, subject) = (format!("{name}.key"), format!("{name}.pem"), format!("/CN={name}"));
    let mut openssl = Command::new("openssl");
    openssl.current_dir(directory).args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", &subject]);
    openssl.args(["-keyout", &key, "-out", &certificate]).args(more);
    let made = openssl.output().expect("openssl is there: `cargo xtask test` installs it");
    assert!(made.status.success(), "openssl failed: {}", String::from_utf8_lossy(&made.stderr));
}
