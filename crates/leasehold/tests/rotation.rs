//! Certificates that are renewed in the same files: a client that connects again uses the new ones.
//!
//! ZooKeeper's sessions outlive a connection, so its test is in its own crate, and so is that of Consul's token file.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind, Result};
use leasehold_servers::consul::Consul;
use leasehold_servers::etcd::Etcd;
use leasehold_servers::free_port;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::postgres::{Postgres, keep_private};
use leasehold_servers::redis::{Certificates, Redis};

/// Longer than any server takes to start.
const PATIENCE: Duration = Duration::from_secs(120);

async fn take_a_turn(client: &Client) -> Result<()> {
    client.mutex("orders/42").acquire().await?.release().await.map(drop)
}

/// The parameters of a URL for TLS, by the names that the store has for them.
fn parameters(files: &Certificates, ca: &str, certificate: &str, key: &str) -> String {
    let file = |path: PathBuf| path.display().to_string();
    format!(
        "{ca}={}&{certificate}={}&{key}={}",
        file(files.certificate("ca")),
        file(files.certificate("client")),
        file(files.key("client"))
    )
}

/// A client goes on after its server was started again with other certificates.
async fn goes_on(url: &str, files: &Certificates, start_again: impl FnOnce()) {
    let client = leasehold::connect(url).await.unwrap();
    take_a_turn(&client).await.unwrap();
    let old = files.certificate("ca").with_file_name("old.pem");
    fs::copy(files.certificate("ca"), &old).unwrap();
    files.renew();
    start_again();
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = take_a_turn(&client).await {
        assert!(error.is_retryable() && Instant::now() < deadline, "{error}");
    }
    // What was read before would not do any more.
    let url = url.replace("ca.pem", "old.pem");
    let error = leasehold::connect(&url).await.map(drop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{error}");
}

/// Puts the server's files where it reads them.
fn put(files: &Certificates, folder: &Path, names: [&str; 3]) {
    let all = [files.certificate("ca"), files.certificate("server"), files.key("server")];
    for (from, name) in all.into_iter().zip(names) {
        let to = folder.join(name);
        fs::copy(from, &to).unwrap();
        keep_private(&to);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_client_uses_renewed_certificates() {
    let (files, port) = (Certificates::make(), free_port());
    let file = |path: PathBuf| path.display().to_string();
    let mut server = Redis::with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &file(files.certificate("server")),
        "--tls-key-file",
        &file(files.key("server")),
        "--tls-ca-cert-file",
        &file(files.certificate("ca")),
    ]);
    let url = format!("rediss://127.0.0.1:{port}?{}", parameters(&files, "cacert", "cert", "key"));
    goes_on(&url, &files, || server.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_client_uses_renewed_certificates() {
    const NAMES: [&str; 3] = ["ca.pem", "server.pem", "server.key"];
    let (files, folder) = (Certificates::make(), tempfile::tempdir().unwrap());
    put(&files, folder.path(), NAMES);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut server = Postgres::with(&[
        "fsync=off",
        "ssl=on",
        &format!("ssl_ca_file={}", path("ca.pem")),
        &format!("ssl_cert_file={}", path("server.pem")),
        &format!("ssl_key_file={}", path("server.key")),
    ]);
    let parameters = parameters(&files, "sslrootcert", "sslcert", "sslkey");
    let url = format!("{}?sslmode=verify-full&{parameters}", server.url());
    let renewed = || {
        put(&files, folder.path(), NAMES);
        server.restart();
    };
    goes_on(&url, &files, renewed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_client_uses_renewed_certificates() {
    let files = Certificates::make();
    let mut server = MariaDb::with_tls(&files);
    server.sql("CREATE USER app@'%' REQUIRE X509; GRANT ALL ON test.* TO app@'%'");
    let (url, parameters) = (server.url(), parameters(&files, "ssl-ca", "ssl-cert", "ssl-key"));
    let url = format!("{}?ssl-mode=verify_identity&{parameters}", url.replace("root@", "app@"));
    let renewed = || {
        put(&files, server.directory(), ["ca", "cert", "key"]);
        server.restart();
    };
    goes_on(&url, &files, renewed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_client_uses_renewed_certificates() {
    let files = Certificates::make();
    let mut server = Etcd::with_tls(&files);
    let url = format!("etcds://127.0.0.1:{}?{}", server.port(), parameters(&files, "cacert", "cert", "key"));
    goes_on(&url, &files, || server.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_client_uses_renewed_certificates() {
    let files = Certificates::make();
    let (mut server, port) = Consul::with_tls(&files);
    let parameters = parameters(&files, "cacert", "cert", "key");
    let url = format!("consuls://127.0.0.1:{port}?min_lease=1s&{parameters}");
    goes_on(&url, &files, || server.restart()).await;
}
