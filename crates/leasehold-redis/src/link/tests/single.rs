use std::time::Instant;

use leasehold_servers::redis::Redis;
use leasehold_servers::{Mode, Proxy};

use super::*;

fn through(proxy: &Proxy) -> Link {
    link(&format!("redis://127.0.0.1:{}", proxy.port()))
}

#[tokio::test]
async fn a_script_runs_and_answers() {
    let server = Redis::start();
    let link = link(&server.url());
    assert_eq!(count(&link).await.unwrap(), 1);
    assert_eq!(count(&link).await.unwrap(), 2);
}

#[tokio::test]
async fn a_script_that_the_server_forgot_runs_all_the_same() {
    let server = Redis::start();
    let link = link(&server.url());
    count(&link).await.unwrap();
    server.cli(&["script", "flush"]);
    assert_eq!(count(&link).await.unwrap(), 2);
}

#[tokio::test]
async fn concurrent_calls_share_one_connection() {
    let server = Redis::start();
    let link = link(&server.url());
    open(&link).await.unwrap();
    let calls = (0..100).map(|_| count_on("count")).collect();
    let answers = link.calls(calls).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    // Its own and the one that asks.
    assert_eq!(server.cli(&["client", "list"]).lines().count(), 2);
}

#[tokio::test]
async fn a_message_is_heard() {
    let server = Redis::start();
    let link = link(&server.url());
    let ear = open(&link).await.unwrap();
    server.cli(&["publish", "inbox", "key"]);
    ear.hears("key").await;
}

#[tokio::test]
async fn a_dropped_link_leaves_no_connection() {
    let server = Redis::start();
    let link = link(&server.url());
    open(&link).await.unwrap();
    drop(link);
    eventually("the connection is closed", || server.cli(&["client", "list"]).lines().count() == 1).await;
}

#[tokio::test]
async fn a_server_that_was_killed_and_is_back_is_used_again() {
    let mut server = Redis::start();
    let link = link(&server.url());
    let ear = open(&link).await.unwrap();
    ear.hears("all").await;
    server.process().kill();
    assert!(count(&link).await.unwrap_err().is_retryable());
    server.start_again();
    assert_eq!(count_soon(&link).await, 1);
    ear.hears("all").await;
    server.cli(&["publish", "inbox", "key"]);
    ear.hears("key").await;
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_that_is_down() {
    let mut server = Redis::start();
    let link = link(&server.url());
    count(&link).await.unwrap();
    server.process().kill();
    // The first may still meet the dying connection.
    let _ = count(&link).await;
    assert_eq!(kind_of_failure(&link).await, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_frozen_server_ends_no_call_late() {
    let mut server = Redis::start();
    let link = link(&server.url());
    count(&link).await.unwrap();
    server.process().freeze();
    for _ in 0..4 {
        let start = Instant::now();
        assert!(count(&link).await.unwrap_err().is_retryable());
        assert!(start.elapsed() < CALL * 3, "{:?}", start.elapsed());
    }
    server.process().thaw();
    count_soon(&link).await;
}

#[tokio::test]
async fn a_reply_that_was_cut_is_an_unknown_outcome() {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let link = through(&proxy);
    count(&link).await.unwrap();
    proxy.set(Mode::CutReplyAfter(2));
    assert_eq!(kind_of_failure(&link).await, ErrorKind::Indeterminate);
    // It did run: the next one counts on.
    assert_eq!(count_soon(&link).await, 3);
}

#[tokio::test]
async fn garbage_is_an_unknown_outcome_and_the_connection_is_made_again() {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let link = through(&proxy);
    count(&link).await.unwrap();
    proxy.set(Mode::Garbage);
    assert_eq!(kind_of_failure(&link).await, ErrorKind::Indeterminate);
    assert_eq!(count_soon(&link).await, 3);
}

#[tokio::test]
async fn two_lost_replies_in_a_row_make_a_new_connection() {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let link = through(&proxy);
    count(&link).await.unwrap();
    let id = || {
        server.cli(&["client", "list"]).lines().next().map(|line| line.split(' ').next().unwrap().to_owned())
    };
    let before = id();
    proxy.set(Mode::DropReplies);
    for _ in 0..2 {
        assert_eq!(kind_of_failure(&link).await, ErrorKind::Indeterminate);
    }
    proxy.set(Mode::Pass);
    count_soon(&link).await;
    eventually("the old connection is gone", || id() != before).await;
}

#[tokio::test]
async fn a_silent_connection_is_replaced_and_the_inbox_with_it() {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let link = through(&proxy);
    let ear = open(&link).await.unwrap();
    ear.hears("all").await;
    proxy.set(Mode::Hold);
    for _ in 0..3 {
        assert!(count(&link).await.unwrap_err().is_retryable());
    }
    proxy.set(Mode::Pass);
    count_soon(&link).await;
    ear.hears("all").await;
    server.cli(&["publish", "inbox", "key"]);
    ear.hears("key").await;
}

#[tokio::test]
async fn a_cut_connection_is_made_again_without_a_call() {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let link = through(&proxy);
    let ear = open(&link).await.unwrap();
    ear.hears("all").await;
    proxy.cut();
    ear.hears("all").await;
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let port = leasehold_servers::free_port();
    let link = link(&format!("redis://127.0.0.1:{port}"));
    let error = open(&link).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_denied() {
    let server = Redis::with(&["--requirepass", "right"]);
    let url = server.url();
    for url in [url.replace("redis://", "redis://:wrong@"), url] {
        let error = open(&link(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!error.to_string().contains("wrong@"), "{error}");
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_denied_and_named() {
    let server = Redis::start();
    server.cli(&[
        "acl",
        "setuser",
        "u",
        "on",
        ">p",
        "~*",
        "&*",
        "+subscribe",
        "+eval",
        "+evalsha",
        "+get",
        "+set",
    ]);
    let url = server.url().replace("redis://", "redis://u:p@");
    let error = count(&link(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("incrby") || error.to_string().contains("script"), "{error}");
    server.cli(&["acl", "setuser", "u", "resetchannels"]);
    let error = open(&link(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn something_else_under_the_name_is_a_conflict() {
    let server = Redis::start();
    server.cli(&["rpush", "count", "x"]);
    assert_eq!(kind_of_failure(&link(&server.url())).await, ErrorKind::Conflict);
}

#[tokio::test]
async fn a_server_without_memory_is_unavailable_and_says_so() {
    let server = Redis::with(&["--maxmemory", "1kb"]);
    let error = count(&link(&server.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("maxmemory"), "{error}");
}

#[tokio::test]
async fn a_replica_says_what_to_do() {
    let server = Redis::start();
    server.cli(&["replicaof", "127.0.0.1", "1"]);
    let error = count(&link(&server.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("redis+sentinel://"), "{error}");
}

#[tokio::test]
async fn a_server_of_a_cluster_says_what_to_do() {
    let bus = leasehold_servers::free_port().to_string();
    let server = Redis::with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let error = count(&link(&server.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = open(&link(&Redis::start().url().replace("redis:", "redis+cluster:"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn a_call_after_its_runtime_has_ended_is_unavailable() {
    let server = Redis::start();
    let link = link(&server.url());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime().block_on(count(&link)).unwrap();
    assert_eq!(runtime().block_on(kind_of_failure(&link)), ErrorKind::Unavailable);
}

#[test]
fn a_call_is_small_enough_to_be_moved_about() {
    let link = link("redis://localhost");
    let size = size_of_val(&link.call(count_on("key")));
    assert!(size <= 2048, "{size} bytes: put what hardly ever happens into a box");
}
