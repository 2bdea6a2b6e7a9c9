//! Who may do what: with a user, everything of ours is that user's.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::process::Command;
use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Result};
use leasehold_servers::zookeeper::ZooKeeper as Server;
use leasehold_zookeeper::ZooKeeper;
use zookeeper_client::{Acls, Client as Raw, CreateMode, Error as Fault};

const NODE: &str = "/apps/leasehold/locks/orders%2F42";

/// The classes of ZooKeeper's own shell, which takes the commands of the page.
const CLASSES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar";

async fn client(server: &Server, login: &str) -> Result<Client> {
    let url = format!("zookeeper://{login}127.0.0.1:{}/apps?tick=200ms", server.port());
    Client::new(ZooKeeper::from_url(&url)?).await
}

/// A way to the server that has nothing of ours in it, for a user or for nobody.
async fn raw(server: &Server, login: Option<&str>) -> Raw {
    let connector = Raw::connector().with_session_timeout(Duration::from_secs(10));
    let raw = connector.connect(&format!("127.0.0.1:{}", server.port())).await.unwrap();
    if let Some(login) = login {
        raw.auth("digest", login.as_bytes()).await.unwrap();
    }
    raw
}

/// The nodes of ours below `/apps`, as their owner sees them: parents, the lock, its claims and the nodes of sessions.
async fn nodes(owner: &Raw) -> Vec<String> {
    let parents = ["/apps/leasehold", "/apps/leasehold/locks", "/apps/leasehold/clients", NODE];
    let mut nodes = parents.map(str::to_owned).to_vec();
    for parent in [NODE, "/apps/leasehold/clients"] {
        let children = owner.list_children(parent).await.unwrap();
        assert!(!children.is_empty(), "nothing is in {parent}");
        nodes.extend(children.iter().map(|child| format!("{parent}/{child}")));
    }
    nodes
}

/// Tries everything with nodes that belong to another user.
async fn touch(stranger: &Raw, nodes: &[String]) {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for node in nodes {
        let denied = Err(Fault::NoAuth);
        assert_eq!(stranger.list_children(node).await.map(drop), denied, "list {node}");
        assert_eq!(stranger.get_data(node).await.map(drop), denied, "read {node}");
        assert_eq!(stranger.set_data(node, b"forged", None).await.map(drop), denied, "write {node}");
        assert_eq!(stranger.set_acl(node, &Acls::anyone_all(), None).await.map(drop), denied, "open {node}");
        let made = stranger.create(&format!("{node}/forged"), b"", &options).await.map(drop);
        // A node of a session has no children, whoever asks.
        assert!([denied, Err(Fault::NoChildrenForEphemerals)].contains(&made), "create in {node}: {made:?}");
        // Deleting is a right on the parent, and `/apps` belongs to the user only if the user created it.
        if node != "/apps/leasehold" {
            assert_eq!(stranger.delete(node, None).await, Err(Fault::NoAuth), "delete {node}");
        }
    }
}

#[tokio::test]
async fn nobody_else_can_touch_the_locks_of_a_user() {
    let server = Server::start();
    let (one, two) =
        (client(&server, "me:secret@").await.unwrap(), client(&server, "me:secret@").await.unwrap());
    let guard = one.mutex("orders/42").acquire().await.unwrap();
    let nodes = nodes(&raw(&server, Some("me:secret")).await).await;
    for login in [None, Some("you:secret"), Some("me:wrong")] {
        touch(&raw(&server, login).await, &nodes).await;
    }
    assert!(guard.is_valid());
    assert!(two.mutex("orders/42").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    two.mutex("orders/42").acquire().await.unwrap().release().await.unwrap();
}

/// The page whose recipes these tests follow.
const PAGE: &str = include_str!("../../../docs/threat-model/zookeeper.md");

/// The lines of the page that start with this.
fn lines(start: &str) -> Vec<&'static str> {
    let found: Vec<_> = PAGE.lines().filter(|line| line.starts_with(start)).collect();
    assert!(!found.is_empty(), "the page has no line that starts with {start}");
    found
}

/// What a command prints.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recipe_for_a_lock_client_keeps_everybody_else_out() {
    let server = Server::start();
    let hash = output(Command::new("sh").args(["-c", lines("printf ")[0]]));
    for line in lines("create ").into_iter().chain(lines("setAcl ")) {
        let mut shell = Command::new("java");
        shell.args(["-cp", CLASSES, "org.apache.zookeeper.ZooKeeperMain", "-server"]);
        shell.arg(format!("127.0.0.1:{}", server.port())).args(line.replace("HASH", &hash).split(' '));
        output(&mut shell);
    }
    let hosts = format!("127.0.0.1:{}", server.port());
    let url = lines("zookeeper://")[0].replace("one,two,three", &hosts);
    let client = Client::new(ZooKeeper::from_url(&format!("{url}?tick=200ms")).unwrap()).await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    let nodes = nodes(&raw(&server, Some("locks:PASSWORD")).await).await;
    for login in [None, Some("you:PASSWORD")] {
        let stranger = raw(&server, login).await;
        touch(&stranger, &nodes).await;
        // The path itself, and what else could be in it.
        assert_eq!(stranger.delete("/apps/leasehold", None).await, Err(Fault::NoAuth));
        assert_eq!(stranger.list_children("/apps").await.map(drop), Err(Fault::NoAuth));
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        assert_eq!(stranger.create("/apps/forged", b"", &options).await.map(drop), Err(Fault::NoAuth));
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recipe_for_a_monitor_shows_counts_and_no_locks() {
    let server = Server::with(&lines("4lw.commands.whitelist="), &[]);
    let client = client(&server, "me:secret@").await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    let shown = server.ask("mntr");
    for count in ["zk_znode_count", "zk_ephemerals_count", "zk_num_alive_connections"] {
        assert!(shown.contains(count), "{shown}");
    }
    for word in ["srvr", "mntr", "conf"] {
        let shown = server.ask(word);
        assert!(!shown.contains("orders") && !shown.contains("leasehold"), "{word}: {shown}");
    }
    // These show the sessions, and the paths that they own or watch.
    for word in ["dump", "cons", "wchp", "wchc"] {
        let shown = server.ask(word);
        assert!(shown.contains("not in the whitelist"), "{word}: {shown}");
    }
    guard.release().await.unwrap();
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
