//! Who may do what: with a user, everything of ours is that user's.

use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Result};
use leasehold_servers::zookeeper::ZooKeeper as Server;
use leasehold_zookeeper::ZooKeeper;
use zookeeper_client::{Client as Raw, Error as Fault};

const NODE: &str = "/apps/leasehold/locks/orders%2F42";

async fn client(server: &Server, login: &str) -> Result<Client> {
    let url = format!("zookeeper://{login}127.0.0.1:{}/apps?tick=200ms", server.port());
    Client::new(ZooKeeper::from_url(&url)?).await
}

#[tokio::test]
async fn nobody_else_can_touch_the_locks_of_a_user() {
    let server = Server::start();
    let (one, two) =
        (client(&server, "me:secret@").await.unwrap(), client(&server, "me:secret@").await.unwrap());
    let guard = one.mutex("orders/42").acquire().await.unwrap();
    let stranger = Raw::connector().with_session_timeout(Duration::from_secs(10));
    let stranger = stranger.connect(&format!("127.0.0.1:{}", server.port())).await.unwrap();
    assert_eq!(stranger.list_children(NODE).await, Err(Fault::NoAuth));
    assert_eq!(stranger.list_children("/apps/leasehold/locks").await, Err(Fault::NoAuth));
    stranger.auth("digest", b"me:secret").await.unwrap();
    let claim = stranger.list_children(NODE).await.unwrap().pop().unwrap();
    drop(stranger);
    let stranger = Raw::connector().with_session_timeout(Duration::from_secs(10));
    let stranger = stranger.connect(&format!("127.0.0.1:{}", server.port())).await.unwrap();
    // Deleting is a right on the parent.
    assert_eq!(stranger.delete(&format!("{NODE}/{claim}"), None).await, Err(Fault::NoAuth));
    assert!(two.mutex("orders/42").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    two.mutex("orders/42").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn who_has_no_rights_is_told_so() {
    let server = Server::start();
    client(&server, "me:secret@").await.unwrap();
    for login in ["", "me:wrong@"] {
        let refused = client(&server, login).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        assert!(!refused.to_string().contains("wrong"), "{refused}");
    }
}

#[tokio::test]
async fn a_user_may_log_in_by_sasl() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("jaas.conf");
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    std::fs::write(&users, format!("Server {{ {module} required user_me=\"secret\"; }};")).unwrap();
    let server = Server::with(
        &["authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"],
        &[&format!("-Djava.security.auth.login.config={}", users.display())],
    );
    let login = async |login: &str| {
        let url = format!("zookeeper://{login}127.0.0.1:{}/apps?tick=200ms", server.port());
        let url = if login.is_empty() { url } else { format!("{url}&auth=sasl") };
        Client::new(ZooKeeper::from_url(&url)?).await
    };
    let client = login("me:secret@").await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    for who in ["", "me:wrong@", "you:secret@"] {
        let refused = login(who).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{who:?}: {refused}");
        assert!(!refused.to_string().contains("wrong"), "{refused}");
    }
    guard.release().await.unwrap();
}
