//! Changes that must be on a replica before they are answered, and requests that are repeated.

use std::time::Duration;

use leasehold_core::{Answer, Change, Claim, Error, ErrorKind, Key, Released, Store as _, Units};
use leasehold_redis::Redis as Store;
use leasehold_servers::redis::Redis;
use tokio::time::{Instant, sleep};

use crate::scene::*;

fn claim() -> Claim {
    Claim::new(Key::new(KEY).expect("it is a name"), 1, Units::Exactly(1)).expect("it makes sense")
}

/// A new connection, as after the old one was cut.
fn connect(primary: &Redis) -> Store {
    Store::from_url(&format!("{}?min_replicas=1", primary.url())).expect("the URL makes sense")
}

/// The first copy runs, and no replica has it; the second writes nothing.
async fn repeats_wait_for_a_replica(primary: Redis) {
    let mut replica = Redis::replica_of(&primary, &[]);
    let (held, lasting) =
        (claim(), Claim { lease: None, key: Key::new("ready").expect("a name"), ..claim() });
    let change = Change::Value { to: (*b"here").into(), op: 1 };
    connect(&primary).claim(&held).await.expect("it is free");
    replica.process().freeze();
    for copy in 1..=2 {
        let amended = connect(&primary).amend(&held, &change).await;
        let claimed = connect(&primary).claim(&lasting).await;
        for (what, answer) in [("amend", amended), ("claim", claimed)] {
            let kind = answer.as_ref().map_err(Error::kind);
            assert_eq!(kind, Err(ErrorKind::Indeterminate), "copy {copy} of {what}: no replica has it");
        }
    }
    replica.process().thaw();
    let end = Instant::now() + 3 * SERVED;
    loop {
        match connect(&primary).amend(&held, &change).await {
            Ok(Answer::Granted(_)) => break,
            other => assert!(Instant::now() < end, "{other:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_writes_nothing_is_answered_only_when_a_replica_has_the_change() {
    repeats_wait_for_a_replica(Redis::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_valkey_a_repeat_that_writes_nothing_is_answered_only_when_a_replica_has_the_change() {
    let allowed = std::env::var("LEASEHOLD_ALLOW_MISSING").unwrap_or_default();
    match leasehold_servers::redis::valkey() {
        Err(missing) if allowed.split(',').any(|name| name.trim() == "valkey") => {
            eprintln!("skipped: {missing}")
        }
        _ => repeats_wait_for_a_replica(Redis::valkey()).await,
    }
}

/// After a failover to a replica that has a claim and not its withdrawal, only a repeated withdrawal would end the claim. So
/// the keeper must learn that no replica has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withdrawal_is_answered_only_when_a_replica_has_it() {
    const MARK: Option<Duration> = Some(Duration::from_secs(60));
    let primary = Redis::start();
    let mut replica = Redis::replica_of(&primary, &[]);
    let named = |name: &str| Claim { key: Key::new(name).expect("a name"), ..claim() };
    let (held, doubtful) = (named("held"), named("doubtful"));
    let (set, ownerless) =
        (Claim { lease: None, ..named("set") }, Claim { lease: None, ..named("ownerless") });
    for claim in [&held, &doubtful, &set, &ownerless] {
        connect(&primary).claim(claim).await.expect("it is free");
    }
    replica.process().freeze();
    let withdrawals = [(&doubtful, MARK), (&set, MARK), (&ownerless, None)];
    for (claim, mark) in withdrawals {
        let kind = connect(&primary).release(claim, mark).await.map_err(|error| Error::kind(&error));
        assert_eq!(kind, Err(ErrorKind::Indeterminate), "{}: no replica has it", claim.key);
    }
    // A lease ends this one if a failover brings it back.
    assert_eq!(connect(&primary).release(&held, None).await.expect("the primary answers"), Released::Held);
    replica.process().thaw();
    let end = Instant::now() + 3 * SERVED;
    for (claim, mark) in withdrawals {
        while let Err(error) = connect(&primary).release(claim, mark).await {
            assert!(Instant::now() < end, "{error}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    let left = replica.cli(&["keys", "leasehold*"]);
    let marks = left.lines().filter(|key| key.starts_with("leasehold.refused:")).count();
    assert_eq!((marks, left.contains("leasehold{:")), (2, false), "{left}");
}
