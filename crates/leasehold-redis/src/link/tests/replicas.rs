use leasehold_servers::redis::{Redis, Sentinel};

use super::*;

fn pair() -> (Redis, Redis) {
    let primary = Redis::start();
    let replica = Redis::replica_of(&primary, &[]);
    (primary, replica)
}

fn acknowledged(primary: &Redis) -> Link {
    link(&format!("{}?min_replicas=1", primary.url()))
}

#[tokio::test]
async fn what_was_answered_is_on_the_replica() {
    let (primary, replica) = pair();
    let link = acknowledged(&primary);
    for n in 1..10 {
        assert_eq!(count(&link).await.unwrap(), n);
        assert_eq!(replica.cli(&["get", "count"]), n.to_string());
    }
}

#[tokio::test]
async fn what_no_replica_has_is_an_unknown_outcome_that_says_why() {
    let (primary, mut replica) = pair();
    let link = acknowledged(&primary);
    count(&link).await.unwrap();
    replica.process().freeze();
    let error = count(&link).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(error.to_string().contains("only 0 of 1 replicas"), "{error}");
    replica.process().thaw();
    count_soon(&link).await;
}

#[tokio::test]
async fn what_needs_no_replica_does_not_wait_for_one() {
    let (primary, mut replica) = pair();
    let link = acknowledged(&primary);
    replica.process().freeze();
    let call = Call { ack: Ack::Free, ..count_on("count") };
    assert_eq!(link.call(call).await.unwrap(), Value::Int(1));
}

#[tokio::test]
async fn concurrent_calls_wait_together() {
    let (primary, _replica) = pair();
    let link = acknowledged(&primary);
    count(&link).await.unwrap();
    primary.cli(&["config", "resetstat"]);
    let answers = link.calls((0..200).map(|_| count_on("count")).collect()).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let statistics = primary.cli(&["info", "commandstats"]);
    let waits = statistics.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls="));
    let waits: u32 = waits.and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap();
    assert!(waits <= 20, "{waits}");
}

#[tokio::test]
async fn a_user_who_may_not_wait_is_denied() {
    let (primary, _replica) = pair();
    primary.cli(&["acl", "setuser", "u", "on", ">p", "~*", "&*", "+@all", "-wait"]);
    let url = primary.url().replace("redis://", "redis://u:p@");
    let error = count(&link(&format!("{url}?min_replicas=1"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_failover() {
    let mut servers = Sentinel::start();
    let link = link(&format!("{}?min_replicas=1", servers.url()));
    let mut last = 0;
    for _ in 0..20 {
        last = count(&link).await.unwrap();
    }
    servers.primary().process().kill();
    assert!(count_soon(&link).await > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_link_leaves_no_task() {
    let (primary, _replica) = pair();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..100 {
        let link = acknowledged(&primary);
        open(&link).await.unwrap();
        count(&link).await.unwrap();
        drop(link);
        eventually("every task is over", || tasks() == 0).await;
    }
}
