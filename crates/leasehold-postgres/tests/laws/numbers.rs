//! Law 3: tokens rise through every loss of memory, and the sequence stays within its bound of the clock.

use std::process::Command;

use leasehold_core::{ErrorKind, QuorumTerms, Store};
use leasehold_servers::postgres::Postgres as Server;
use leasehold_servers::wait_until;

use super::*;

/// How far the sequence may be ahead of the server's clock, in microseconds.
const BOUND: i64 = 60_000_000;

/// How far it is.
fn ahead(server: &Server) -> i64 {
    let ahead = "SELECT last_value - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM leasehold.numbers";
    server.sql(ahead).parse().unwrap()
}

/// A primary, and a standby that has everything so far and will receive nothing more.
fn lagging(primary: &Server) -> Server {
    let standby = Server::standby_of(primary);
    let here = primary.sql("SELECT pg_current_wal_insert_lsn()");
    let caught_up = format!("SELECT pg_last_wal_replay_lsn() >= '{here}'");
    wait_until("the standby has caught up", SOON, || standby.sql(&caught_up) == "t");
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    wait_until("the standby receives nothing more", SOON, || {
        primary.sql("SELECT count(*) FROM pg_stat_replication") == "0"
    });
    standby
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_when_a_lagging_standby_takes_over() {
    for mode in ["lease", "advisory", "rowlock"] {
        let mut primary = Server::start();
        run(&in_mode(&primary, mode)).await;
        let standby = lagging(&primary);
        let mut last = 0;
        for _ in 0..4 {
            last = run(&in_mode(&primary, mode)).await;
        }
        primary.kill();
        standby.promote();
        let next = run(&in_mode(&standby, mode)).await;
        assert!(next > last, "{mode}: {next} after {last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_after_the_schema_was_dropped() {
    for mode in ["lease", "advisory", "rowlock"] {
        let server = Server::start();
        let mut last = 0;
        for _ in 0..7 {
            last = run(&in_mode(&server, mode)).await;
        }
        server.sql("DROP SCHEMA leasehold CASCADE");
        let next = run(&in_mode(&server, mode)).await;
        assert!(next > last, "{mode}: {next} after {last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_after_a_dump_was_restored() {
    let server = Server::start();
    // Its connections live through the restore.
    let connected = store(&server.url());
    token(&connected, &claim("first")).await;
    let dump = server.dump("leasehold");
    let mut last = 0;
    for n in 0..4 {
        last = token(&connected, &claim(&format!("since {n}"))).await;
    }
    for who in ["connected", "new"] {
        server.sql("DROP SCHEMA leasehold CASCADE");
        server.restore(&dump);
        let used = if who == "new" { store(&server.url()) } else { connected.clone() };
        let next = token(&used, &claim(&format!("after {who}"))).await;
        assert!(next > last, "{who}: {next} after {last}");
        last = next;
    }
    for mode in SESSIONS {
        tokens_of_a_connected_session_rise_after_a_restore(mode).await;
    }
}

/// The same for a client whose sessions live through the restore and take locks on them.
async fn tokens_of_a_connected_session_rise_after_a_restore(mode: &str) {
    let server = Server::start();
    let url = in_mode(&server, mode);
    let (one, two) = (client(&url, LONG).await, client(&url, LONG).await);
    take(&one, "k").await;
    take(&two, "k").await;
    let dump = server.dump("leasehold");
    let mut last = 0;
    for _ in 0..6 {
        last = take(&one, "k").await;
    }
    let sessions = "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity
        WHERE application_name LIKE 'leasehold%'";
    let before = server.sql(sessions);
    server.sql("DROP SCHEMA leasehold CASCADE");
    server.restore(&dump);
    assert_eq!(server.sql(sessions), before, "{mode}: the sessions live");
    // One that is granted immediately, and one that waits for it.
    let guard = one.mutex("k").acquire().await.unwrap();
    assert!(guard.token() > last, "{mode}: {} after {last}", guard.token());
    let waits = tokio::spawn(async move { take(&two, "k").await });
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    wait_until("it waits at the server", SOON, || server.sql(waiting) == "1");
    // A hold does not keep new sessions from learning that the sequence is another one.
    let third = take(&client(&url, LONG).await, "another").await;
    let first = guard.token();
    guard.release().await.unwrap();
    let second = waits.await.unwrap();
    assert!(second > first && third > first, "{mode}: {second} and {third} after {first}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_after_a_restore_of_data_only_and_a_restart() {
    for mode in ["lease", "advisory", "rowlock"] {
        let mut server = Server::start();
        run(&in_mode(&server, mode)).await;
        let dump = server.dump("leasehold");
        let set_back = dump.lines().find(|line| line.contains("pg_catalog.setval")).unwrap();
        let mut last = 0;
        for _ in 0..4 {
            last = run(&in_mode(&server, mode)).await;
        }
        server.sql(set_back);
        server.restart();
        let next = run(&in_mode(&server, mode)).await;
        assert!(next > last, "{mode}: {next} after {last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_after_a_snapshot_of_the_disk_was_restored() {
    for mode in ["lease", "advisory", "rowlock"] {
        let mut server = Server::start();
        run(&in_mode(&server, mode)).await;
        let directory = server.directory().to_owned();
        let copy = |from: &str, to: &str| {
            let (from, to) = (directory.join(from), directory.join(to));
            assert!(Command::new("rm").arg("-rf").arg(&to).status().unwrap().success());
            assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
        };
        server.kill();
        copy("data", "snapshot");
        server.start_again();
        let mut last = 0;
        for _ in 0..3 {
            last = run(&in_mode(&server, mode)).await;
        }
        server.kill();
        copy("snapshot", "data");
        server.start_again();
        let next = run(&in_mode(&server, mode)).await;
        assert!(next > last, "{mode}: {next} after {last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_after_crashes_that_forget_the_last_draws() {
    // The server writes nothing to its log in its own time, so the draws of session modes are lost with it.
    let mut server = Server::with(&["fsync=off", "wal_writer_delay=10s"]);
    let mut last = 0;
    for _ in 0..3 {
        for mode in SESSIONS {
            let url = in_mode(&server, mode);
            let client = client(&url, LONG).await;
            for _ in 0..50 {
                let guard = client.mutex("k").acquire().await.unwrap();
                assert!(guard.token() > last, "{mode}: {} after {last}", guard.token());
                last = guard.token();
                guard.release().await.unwrap();
            }
            server.restart();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_and_leaps_stay_within_the_bound() {
    let server = Server::start();
    let mut last = 0;
    for mode in SESSIONS {
        for _ in 0..20 {
            let next = run(&in_mode(&server, mode)).await;
            assert!(next > last, "{mode}: {next} after {last}");
            last = next;
        }
    }
    assert!(ahead(&server) <= BOUND, "{} µs ahead after 40 connections", ahead(&server));
    for mode in ["lease", "advisory", "rowlock"].into_iter().cycle().take(20) {
        server.sql("SELECT count(leasehold.leap_1()) FROM generate_series(1, 50)");
        assert!(ahead(&server) <= BOUND, "{} µs ahead after 50 leaps", ahead(&server));
        let next = run(&in_mode(&server, mode)).await;
        assert!(next > last, "{mode}: {next} after {last}");
        last = next;
    }
}

/// A quorum's tokens come from the clocks of its clients, which may be ahead of the server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_whose_token_is_far_ahead_of_the_clock_can_be_evicted() {
    let server = Server::start();
    let store = store(&server.url());
    token(&store, &claim("first")).await;
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    for ahead_by in [3_600_000_000, 59_500_000] {
        let now: u64 = server.sql(now).parse().unwrap();
        let terms = QuorumTerms { keep: Duration::ZERO, min_age: Duration::ZERO, again: false };
        let held = Claim { token_above: now + ahead_by, quorum: Some(terms), ..claim("k") };
        let token = token(&store, &held).await;
        assert!(store.evict(&held.key, token).await.unwrap(), "{ahead_by} µs ahead");
        assert_eq!(store.inspect(&held.key).await.unwrap().map(|seen| seen.holders.len()), None);
        assert!(ahead(&server) <= BOUND, "{} µs ahead", ahead(&server));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_above_the_bound_is_refused() {
    let server = Server::start();
    let store = store(&server.url());
    token(&store, &claim("first")).await;
    let far = Claim { token_above: 1 << 60, ..claim("far") };
    let error = store.claim(&far).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("clock"), "{error}");
    assert!(ahead(&server) <= BOUND);
    token(&store, &claim("far")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_clock_was_set_back_a_restarted_server_grants_nothing_until_it_has_caught_up() {
    let mut server = Server::with_a_clock();
    let last = run(&in_mode(&server, "advisory")).await;
    server.set_clock(-3600);
    server.restart();
    let error = Client::new(store(&in_mode(&server, "advisory"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("clock"), "{error}");
    server.set_clock(0);
    assert!(run(&in_mode(&server, "advisory")).await > last);
}
