use leasehold_core::ErrorKind;

use super::*;

fn target(url: &str) -> Target {
    Target::parse(url).unwrap()
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp(host.into(), port)
}

fn refusal(url: &str) -> String {
    let error = Target::parse(url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
    error.to_string()
}

#[test]
fn a_host_alone_is_enough() {
    let found = target("redis://db");
    assert_eq!(found.topology, Topology::Single(tcp("db", 6379)));
    assert_eq!((found.db, found.tls, found.min_replicas), (0, None, 0));
    assert_eq!(found.login, Login::default());
}

#[test]
fn user_password_port_and_database_are_read() {
    let found = target("redis://app:p%40ss:w@db:7000/3?timeout=250ms&connect_timeout=2s&min_replicas=1");
    assert_eq!(found.topology, Topology::Single(tcp("db", 7000)));
    assert_eq!(found.login, Login { user: Some("app".into()), password: Some("p@ss:w".into()) });
    assert_eq!((found.db, found.min_replicas), (3, 1));
    assert_eq!(found.timeout, Duration::from_millis(250));
    assert_eq!(found.connect_timeout, Duration::from_secs(2));
}

#[test]
fn ipv6_hosts_are_bracketed() {
    assert_eq!(target("redis://[::1]:7000").topology, Topology::Single(tcp("::1", 7000)));
    assert_eq!(target("redis://[::1]").topology, Topology::Single(tcp("::1", 6379)));
    assert_eq!(tcp("::1", 7).to_string(), "[::1]:7");
}

#[test]
fn a_socket_is_a_path() {
    let found = target("redis+unix:///run/redis%20a.sock?db=2");
    assert_eq!(found.topology, Topology::Single(Address::Unix("/run/redis a.sock".into())));
    assert_eq!(found.db, 2);
    assert!(refusal("redis+unix://host/path").contains("redis+unix:///path"));
}

#[test]
fn sentinels_watch_a_service() {
    let found = target("redis+sentinel://:pw@a,b:7000/main/4?sentinel_password=sp");
    let sentinels = vec![tcp("a", 26379), tcp("b", 7000)];
    let login = Login { user: None, password: Some("sp".into()) };
    assert_eq!(found.topology, Topology::Sentinel { sentinels, service: "main".into(), login });
    assert_eq!(found.db, 4);
    assert!(refusal("redis+sentinel://a,b").contains("service"));
}

#[test]
fn a_cluster_has_seeds_and_one_database() {
    let found = target("redis+cluster://a,b:7000");
    assert_eq!(found.topology, Topology::Cluster { seeds: vec![tcp("a", 6379), tcp("b", 7000)] });
    assert!(refusal("redis+cluster://a/1").contains("database 0"));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    for url in ["redis:db", "redis://", "redis://a,b", "redis://db/x", "redis://db/-1", "redis://db:x"] {
        refusal(url);
    }
    for url in ["redis+what://db", "redis://db?timeout=2", "redis://db?timeout=0s", "redis://user@db"] {
        refusal(url);
    }
    assert!(refusal("redis://db?min_replica=1").contains("min_replicas"));
    assert!(refusal("redis://db?cacert=x").contains("rediss"));
}

#[test]
fn a_password_is_in_no_message_and_no_debug_output() {
    let shown = format!("{:?}", target("redis+sentinel://u:hunter2@a/s?sentinel_password=hunter2"));
    assert!(!shown.contains("hunter2"), "{shown}");
    for url in ["redis://u:hunter2@h?x=1", "redis://u:hunter2@h:x", "redis://:hunter2@a,b"] {
        assert!(!refusal(url).contains("hunter2"), "{url}");
    }
}
