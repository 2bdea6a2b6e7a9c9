//! Claims and releases of many tasks that share one commit.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Answer, Claim, IfBusy, Key, Released, Result, Store, Units};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::{Mode, Proxy};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Ends a hang.
const SOON: Duration = Duration::from_secs(60);
/// So long that its end cannot be the reason for anything.
const LONG: Duration = Duration::from_secs(300);
/// So many at once that most of them gather.
const MANY: usize = 60;

/// No call of it is about time.
fn patient(server: &MariaDb) -> Mysql {
    Mysql::from_url(&format!("{}?timeout=30s&connect_timeout=30s", server.url())).unwrap()
}

fn claim(name: &str) -> Claim {
    let key = Key::new(name).unwrap();
    let claim = Claim::new(key, 1, Units::Exactly(1)).unwrap();
    Claim { lease: Some(LONG), patience: LONG, if_busy: IfBusy::Leave, ..claim }
}

fn claims() -> Vec<Claim> {
    (0..MANY).map(|n| claim(&format!("lock {n}"))).collect()
}

async fn claim_all(store: &Mysql, claims: &[Claim]) -> Vec<Result<Answer>> {
    timeout(SOON, join_all(claims.iter().map(|claim| store.claim(claim)))).await.unwrap()
}

async fn release_all(store: &Mysql, claims: &[Claim]) -> Vec<Result<Released>> {
    timeout(SOON, join_all(claims.iter().map(|claim| store.release(claim, None)))).await.unwrap()
}

fn token(answer: Result<Answer>) -> u64 {
    match answer.unwrap() {
        Answer::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    }
}

/// How many statements of a kind the server was asked so far.
fn asked(server: &MariaDb, kind: &str) -> u64 {
    let said = server.sql(&format!("SHOW GLOBAL STATUS LIKE '{kind}'"));
    said.split('\t').nth(1).unwrap().parse().unwrap()
}

/// How many locks and claims there are.
fn left(server: &MariaDb) -> String {
    server.sql(
        "SELECT (SELECT count(*) FROM test.leasehold_keys), (SELECT count(*) FROM test.leasehold_claims)",
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_need_far_fewer_commits_than_claims_and_each_hears_its_own_answer() {
    let server = MariaDb::start();
    let (store, mut claims) = (patient(&server), claims());
    // As many numbers as one draw has would not do.
    claims.extend((0..MANY).map(|n| claim(&format!("more {n}"))));
    store.inspect(&claims[0].key).await.unwrap();
    for _ in 0..3 {
        let commits = asked(&server, "Com_commit");
        let mut tokens: Vec<u64> = claim_all(&store, &claims).await.into_iter().map(token).collect();
        for (claim, token) in claims.iter().zip(&tokens) {
            let seen = store.inspect(&claim.key).await.unwrap().unwrap();
            assert_eq!((seen.holders[0].token, seen.holders.len()), (*token, 1), "{}", claim.key);
        }
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), claims.len(), "no number twice");
        let removals = asked(&server, "Com_delete_multi");
        for released in release_all(&store, &claims).await {
            assert_eq!(released.unwrap(), Released::Held);
        }
        let commits = asked(&server, "Com_commit") - commits;
        let removals = asked(&server, "Com_delete_multi") - removals;
        assert!(commits + removals <= claims.len() as u64 / 4, "{commits} and {removals}");
        assert_eq!(left(&server), "0\t0");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_busy_costs_the_others_nothing_and_is_told_so() {
    let server = MariaDb::start();
    let (one, other, mut claims) = (patient(&server), patient(&server), claims());
    let held = claim("held");
    token(one.claim(&held).await);
    claims.insert(MANY / 2, claim("held"));
    let mut patient = claim("held");
    patient.if_busy = IfBusy::Queue;
    claims.push(patient.clone());
    let commits = asked(&server, "Com_commit");
    for (claim, answer) in claims.iter().zip(claim_all(&other, &claims).await) {
        match answer.unwrap() {
            Answer::Granted(_) => assert_ne!(claim.key, held.key),
            Answer::Busy => assert!(claim.key == held.key && claim.if_busy == IfBusy::Leave),
            Answer::Waiting(_) => assert_eq!(claim.id, patient.id),
            answer => panic!("{}: {answer:?}", claim.key),
        }
    }
    let commits = asked(&server, "Com_commit") - commits;
    assert!(commits <= MANY as u64 / 4, "{commits}");
    // Of these one is gone, one waits, and one is waited for.
    claims.retain(|claim| claim.key != held.key);
    claims.extend([claim("nobody's"), patient, held]);
    let released = release_all(&one, &claims).await;
    let released: Vec<_> = released.into_iter().map(|released| released.unwrap()).collect();
    assert!(released[..MANY].iter().all(|released| *released == Released::Held), "{released:?}");
    assert_eq!(released[MANY], Released::Gone);
    assert_eq!(released[MANY + 2], Released::Held);
    // Whichever of the two was first: it waited, or it had been promoted.
    assert_ne!(released[MANY + 1], Released::Gone);
    assert_eq!(left(&server), "0\t0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_given_up_is_refused_among_others() {
    let server = MariaDb::start();
    let (store, claims) = (patient(&server), claims());
    let given_up = &claims[MANY / 2];
    store.release(given_up, Some(LONG)).await.unwrap();
    for (claim, answer) in claims.iter().zip(claim_all(&store, &claims).await) {
        match answer.unwrap() {
            Answer::Granted(_) => assert_ne!(claim.id, given_up.id),
            answer => assert_eq!((answer, claim.id), (Answer::Gone, given_up.id)),
        }
    }
    assert_eq!(store.inspect(&given_up.key).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_granted_a_token_that_is_too_small_for_it() {
    let server = MariaDb::start();
    let (store, mut claims) = (patient(&server), claims());
    // Each new connection moves the source of numbers, so all of them are there before.
    let warm: Vec<Claim> = (0..MANY).map(|n| claim(&format!("warm {n}"))).collect();
    claim_all(&store, &warm).await.into_iter().map(token).for_each(|token| assert!(token > 0));
    let first = token(store.claim(&claim("first")).await);
    // As far ahead of the source as the clock has come since then.
    tokio::time::sleep(Duration::from_millis(500)).await;
    claims[MANY / 2].token_above = first + 400_000;
    let tokens: Vec<u64> = claim_all(&store, &claims).await.into_iter().map(token).collect();
    for (claim, token) in claims.iter().zip(tokens) {
        assert!(token > first.max(claim.token_above), "{}: {token}", claim.key);
    }
    for claim in &claims {
        assert_eq!(store.inspect(&claim.key).await.unwrap().unwrap().holders.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_keeps_does_not_keep_the_others() {
    let server = MariaDb::start();
    let (store, claims) = (patient(&server), claims());
    claim_all(&store, &claims).await.into_iter().map(token).for_each(|token| assert!(token > 0));
    release_all(&store, &claims).await;
    let mut keeper = Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap();
    keeper.query_drop("BEGIN").await.unwrap();
    let kept = &claims[MANY / 2];
    let row = format!("'{}', 0, 0, 0, 0, 0, 0, 0, 0", kept.key.as_str());
    keeper.query_drop(format!("INSERT INTO leasehold_keys VALUES ({row})")).await.unwrap();
    let began = Instant::now();
    let all = claims.iter().map(async |claim| {
        token(store.claim(claim).await);
        (claim.key == kept.key, began.elapsed())
    });
    let free = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        keeper.query_drop("ROLLBACK").await.unwrap();
    };
    let (all, ()) = tokio::join!(join_all(all), free);
    for (is_kept, took) in all {
        assert_eq!(is_kept, took >= Duration::from_secs(5), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_knows_is_found_out_by_asking_again() {
    let server = MariaDb::start();
    let proxy = Proxy::to(server.port());
    let url = format!("mysql://root@127.0.0.1:{}/test?timeout=2s", proxy.port());
    let (store, claims) = (Mysql::from_url(&url).unwrap(), claims());
    // So that there are connections.
    claim_all(&store, &claims).await.into_iter().map(token).for_each(|token| assert!(token > 0));
    release_all(&store, &claims).await;
    proxy.set(Mode::DropReplies);
    for answer in claim_all(&store, &claims).await {
        assert!(answer.unwrap_err().is_retryable());
    }
    proxy.set(Mode::Pass);
    let store = patient(&server);
    let tokens: Vec<u64> = claim_all(&store, &claims).await.into_iter().map(token).collect();
    let again: Vec<u64> = claim_all(&store, &claims).await.into_iter().map(token).collect();
    assert_eq!(tokens, again);
    for released in release_all(&store, &claims).await {
        assert_eq!(released.unwrap(), Released::Held);
    }
    assert_eq!(left(&server), "0\t0");
}

/// A lock as those see it who use it.
#[derive(Default)]
struct Seen {
    is_held: AtomicBool,
    last: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_goes_together_excludes_each_other_and_tokens_rise() {
    const LOCKS: usize = 24;
    let server = MariaDb::start();
    let stores = [patient(&server), patient(&server)];
    let seen: Arc<[Seen]> = (0..LOCKS).map(|_| Seen::default()).collect();
    let grants = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..2 * MANY {
        let (store, seen, grants) = (stores[n % 2].clone(), seen.clone(), grants.clone());
        tasks.spawn(async move {
            for _ in 0..30 {
                let lock = fastrand::usize(..LOCKS);
                let claim = claim(&format!("lock {lock}"));
                let Answer::Granted(grant) = store.claim(&claim).await.unwrap() else { continue };
                grants.fetch_add(1, Ordering::Relaxed);
                assert!(!seen[lock].is_held.swap(true, Ordering::SeqCst), "two hold {lock}");
                let last = seen[lock].last.swap(grant.token, Ordering::SeqCst);
                assert!(grant.token > last, "{} after {last}", grant.token);
                tokio::task::yield_now().await;
                seen[lock].is_held.store(false, Ordering::SeqCst);
                assert_eq!(store.release(&claim, None).await.unwrap(), Released::Held);
            }
        });
    }
    timeout(SOON, tasks.join_all()).await.unwrap();
    assert!(grants.load(Ordering::Relaxed) > LOCKS, "hardly anybody was granted anything");
    assert_eq!(left(&server), "0\t0");
}
