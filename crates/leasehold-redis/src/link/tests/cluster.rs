use leasehold_servers::redis::Cluster;

use super::*;

/// A key on each of the three primaries.
fn keys(cluster: &Cluster) -> [String; 3] {
    let key_of = |owner| (0..).map(|n| format!("k{n}")).find(|key| cluster.owner(key, 0) == owner).unwrap();
    [key_of(0), key_of(1), key_of(2)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_goes_to_the_server_that_has_the_slot() {
    let mut cluster = Cluster::start();
    let link = link(&cluster.url());
    let keys = keys(&cluster);
    let answers = link.calls(keys.iter().map(|key| count_on(key)).collect()).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(cluster.server(index).cli(&["get", key]), "1");
        assert_eq!(cluster.server(index).cli(&["info", "errorstats"]).matches("MOVED").count(), 0);
    }
    assert_eq!(link.primaries().await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_from_any_server_is_heard_once() {
    let mut cluster = Cluster::start();
    let link = link(&cluster.url());
    let ear = open(&link).await.unwrap();
    ear.hears("all").await;
    for index in 0..3 {
        ear.heard.lock().unwrap().clear();
        cluster.server(index).cli(&["publish", "inbox", "key"]);
        cluster.server(index).cli(&["publish", "inbox", "end"]);
        ear.hears_only(&["key", "end"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_can_move_while_it_is_used() {
    let mut cluster = Cluster::start();
    let link = link(&cluster.url());
    let key = "moving";
    let to = (cluster.owner(key, 0) + 1) % 3;
    // A key that is not there would be made at the new place at once.
    link.call(count_on(key)).await.unwrap();
    let mut counted = 1;
    let runtime = tokio::runtime::Handle::current();
    let step = || {
        for _ in 0..3 {
            let counting = link.call(count_on(key));
            let answer = tokio::task::block_in_place(|| runtime.block_on(counting));
            counted += 1;
            assert_eq!(answer.unwrap(), Value::Int(counted));
        }
    };
    cluster.move_slot(key, to, step);
    assert!(counted >= 10, "{counted}");
    assert_eq!(cluster.server(to).cli(&["get", key]), counted.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_delays_only_its_own_keys_until_its_replica_takes_over() {
    let mut cluster = Cluster::start();
    let link = link(&cluster.url());
    let ear = open(&link).await.unwrap();
    let [sick, well, _] = keys(&cluster);
    link.call(count_on(&sick)).await.unwrap();
    eventually("its replica has it", || cluster.server(3).cli(&["keys", &sick]) == sick).await;
    cluster.server(0).process().kill();
    let start = std::time::Instant::now();
    link.call(count_on(&well)).await.unwrap();
    assert!(start.elapsed() < CALL, "{:?}", start.elapsed());
    // A call that was answered too late may have counted as well.
    let counted = call_soon(&link, &sick).await;
    assert!(matches!(counted, Value::Int(2..)), "{counted:?}");
    ear.heard.lock().unwrap().clear();
    cluster.server(1).cli(&["publish", "inbox", "key"]);
    ear.hears("key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_left_for_its_replica() {
    let mut cluster = Cluster::start();
    let link = link(&cluster.url());
    let [sick, well, other] = keys(&cluster);
    link.call(count_on(&sick)).await.unwrap();
    cluster.server(0).process().freeze();
    let start = std::time::Instant::now();
    let mut answers = link.calls([&sick, &well, &other].map(|key| count_on(key)).into()).await;
    assert!(start.elapsed() < CALL * 3, "{:?}", start.elapsed());
    assert!(answers.remove(0).unwrap_err().is_retryable());
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    call_soon(&link, &sick).await;
    assert_eq!(cluster.owner(&sick, 1), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_seed_that_answers_is_enough() {
    let cluster = Cluster::start();
    let nobody = leasehold_servers::free_port();
    let url = cluster.url().replace("redis+cluster://", &format!("redis+cluster://127.0.0.1:{nobody},"));
    let first = url.split(',').take(2).collect::<Vec<_>>().join(",");
    count(&link(&first)).await.unwrap();
}

async fn call_soon(link: &Link, key: &str) -> Value {
    let calling = async {
        loop {
            match link.call(count_on(key)).await {
                Ok(value) => return value,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    };
    timeout(SOON, calling).await.expect("the replica takes over")
}
