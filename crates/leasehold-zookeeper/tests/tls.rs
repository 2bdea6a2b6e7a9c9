//! TLS on a real server: both sides show certificates, and both check them.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Result};
use leasehold_servers::free_port;
use leasehold_servers::redis::Certificates;
use leasehold_servers::zookeeper::ZooKeeper as Server;
use leasehold_zookeeper::ZooKeeper;
use tempfile::TempDir;

/// Ends what hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A server that speaks TLS on a second port and wants certificates of its clients.
struct Scene {
    server: Server,
    port: u16,
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        certify(&folder);
        let file = |name: &str| folder.path().join(name).display().to_string();
        let lines = [
            format!("secureClientPort={port}"),
            "secureClientPortAddress=127.0.0.1".to_owned(),
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
            format!("ssl.keyStore.location={}", file("server.pem")),
            format!("ssl.trustStore.location={}", file("ca.pem")),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        Self { server: Server::with(&lines, &[]), port, folder }
    }

    fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn trusting(&self) -> String {
        format!("cacert={}", self.folder.path().join("ca.pem").display())
    }

    fn identified(&self) -> String {
        let file = |name: &str| self.folder.path().join(name);
        let (cert, key) = (file("client.pem"), file("client.key"));
        format!("{}&cert={}&key={}", self.trusting(), cert.display(), key.display())
    }
}

/// Certificates of a new authority, in place of those that were there.
fn certify(folder: &TempDir) {
    let made = Certificates::make();
    let put = |name: &str, from: &[PathBuf]| {
        let texts: Vec<String> = from.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        fs::write(folder.path().join(name), texts.concat()).unwrap();
    };
    put("ca.pem", &[made.certificate("ca")]);
    put("server.pem", &[made.key("server"), made.certificate("server")]);
    put("client.pem", &[made.certificate("client")]);
    put("client.key", &[made.key("client")]);
}

async fn client(at: &str, parameters: &str) -> Result<Client> {
    let url = format!("zookeepers://{at}/apps?tick=200ms&timeout=30s&{parameters}");
    Client::new(ZooKeeper::from_url(&url)?).await
}

#[tokio::test]
async fn a_session_outlives_its_certificates() {
    let mut scene = Scene::new();
    let client = client(&scene.at(), &scene.identified()).await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    certify(&scene.folder);
    scene.server.restart();
    let seen = tokio::time::timeout(LIMIT, async {
        loop {
            // Who asks while nobody is connected is told so.
            if let Ok(Some(seen)) = client.inspect("orders/42").await {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(seen.await.unwrap().holders[0].token, guard.token());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn who_does_not_trust_the_other_is_told_so() {
    let (scene, others) = (Scene::new(), Certificates::make());
    let others = format!("cacert={}", others.certificate("ca").display());
    let elsewhere = format!("localhost:{}", scene.port);
    for (at, parameters, why) in [
        (&scene.at(), &scene.trusting(), "our certificate is missing"),
        (&scene.at(), &others, "another authority"),
        (&scene.at(), &String::new(), "the system's authorities"),
        (&elsewhere, &scene.identified(), "another host"),
    ] {
        let refused = client(at, parameters).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{why}: {refused}");
        assert!(refused.to_string().contains("cacert"), "{why}: {refused}");
    }
}

#[tokio::test]
async fn a_port_without_tls_is_told_from_one_that_nobody_listens_to() {
    let server = Server::start();
    let ca = Certificates::make();
    let trusting = format!("cacert={}", ca.certificate("ca").display());
    let refused = client(&format!("127.0.0.1:{}", server.port()), &trusting).await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("secureClientPort"), "{refused}");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named_before_anything_is_sent() {
    let refused = client("127.0.0.1:1", "cacert=/nowhere/ca.pem").await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("/nowhere/ca.pem"), "{refused}");
}
