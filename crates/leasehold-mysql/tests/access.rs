//! TLS and client certificates; and what is said to those who are not let in.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use leasehold_core::{Client, Error, ErrorKind};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::redis::Certificates;

async fn client(url: &str) -> Result<Client, Error> {
    Client::new(Mysql::from_url(url)?).await
}

/// Goes through the life of a lock.
async fn works(url: &str) {
    let client = client(url).await.unwrap();
    let guard = client.mutex("k").acquire().await.unwrap();
    guard.release().await.unwrap();
}

async fn refusal(url: &str) -> String {
    let error = client(url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    error.to_string()
}

fn verified(url: &str, files: &Certificates) -> String {
    format!(
        "{url}?timeout=30s&connect_timeout=30s&ssl-mode=VERIFY_IDENTITY&ssl-ca={}",
        files.certificate("ca").display()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_of_every_mode_is_encrypted() {
    let files = Certificates::make();
    let server = MariaDb::with_tls(&files);
    server.sql("CREATE USER app@'%' REQUIRE SSL; GRANT ALL ON test.* TO app@'%'");
    let url = server.url().replace("root@", "app@");
    for mode in ["lease", "advisory", "rowlock"] {
        works(&format!("{}&mode={mode}", verified(&url, &files))).await;
    }
    refusal(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_must_show_a_certificate_is_let_in_with_it_only() {
    let files = Certificates::make();
    let server = MariaDb::with_tls(&files);
    server.sql("CREATE USER app@'%' REQUIRE X509; GRANT ALL ON test.* TO app@'%'");
    let url = verified(&server.url().replace("root@", "app@"), &files);
    let (certificate, key) = (files.certificate("client"), files.key("client"));
    works(&format!("{url}&ssl-cert={}&ssl-key={}", certificate.display(), key.display())).await;
    refusal(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_authority_or_name_is_not_talked_to() {
    let (files, others) = (Certificates::make(), Certificates::make());
    let server = MariaDb::with_tls(&files);
    for url in [
        verified(&server.url(), &others),
        // The certificate is for the address.
        verified(&server.url().replace("127.0.0.1", "localhost"), &files),
        // Whom the system trusts has nothing to do with it.
        format!("{}?ssl-mode=required&ssl-ca={}", server.url(), files.certificate("client").display()),
    ] {
        let said = refusal(&url).await;
        assert!(said.contains("ssl-ca"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_told_and_nothing_is_said_in_the_clear() {
    let files = Certificates::make();
    let server = MariaDb::start();
    let said = refusal(&verified(&server.url(), &files)).await;
    assert!(said.contains("no TLS"), "{said}");
}

#[tokio::test]
async fn a_file_that_is_not_there_is_named() {
    let url = "mysql://root@127.0.0.1:1/test?ssl-mode=verify_identity&ssl-ca=/no/such.pem";
    let error = client(url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("/no/such.pem"), "{error}");
}
