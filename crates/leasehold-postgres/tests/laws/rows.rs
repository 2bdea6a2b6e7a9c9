//! Rows of the lock tables that another session keeps.

use leasehold_core::Store;
use leasehold_postgres::init_sql;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_ends_while_its_claim_waits_for_the_row_leaves_no_hold() {
    let server = Server::start();
    server.sql(&init_sql("leasehold").unwrap());
    let store = store(&format!("{}?timeout=10s", server.url()));
    token(&store, &claim("first")).await;
    let late = claim("k");
    let (keeper, moves) = session(&server.url()).await;
    // A transaction that makes the lock's row and takes it back: the claim waits for it, and finds the lock free.
    keeper.batch_execute("BEGIN; INSERT INTO leasehold.keys VALUES ('k', 1, 1, 0, 0, 0, 0)").await.unwrap();
    let (other, other_moves) = session(&server.url()).await;
    let refuse = "INSERT INTO leasehold.refusals VALUES ($1, leasehold.clock_1() + 500)";
    other.execute(refuse, &[&late.id.as_bytes().to_vec()]).await.unwrap();
    let asked = {
        let (store, late) = (store.clone(), late.clone());
        tokio::spawn(async move { store.claim(&late).await })
    };
    sleep(Duration::from_millis(1000)).await;
    assert!(!asked.is_finished(), "it waits for the row");
    keeper.batch_execute("ROLLBACK").await.unwrap();
    let said = timeout(SOON, asked).await.unwrap().unwrap().unwrap();
    // Refused or granted: both are right, as long as the books agree.
    let books = "SELECT coalesce(sum(k.claims), 0), (SELECT count(*) FROM leasehold.claims WHERE name = 'k')
        FROM leasehold.keys k WHERE k.name = 'k'";
    let books = server.sql(books);
    let expected = if matches!(said, Answer::Granted(_)) { "1|1" } else { "0|0" };
    assert_eq!(books, expected, "{said:?}");
    if said == Answer::Gone {
        token(&store, &claim("k")).await;
    }
    drop((keeper, other));
    let _ = (moves.await, other_moves.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_another_session_keeps_costs_only_its_own_lock() {
    let server = Server::start();
    // Long enough for the keeper to renew them together.
    let lease = Duration::from_secs(6);
    let client = client(&server.url(), lease).await;
    let mut all = JoinSet::new();
    for n in 0..100 {
        let lock = client.mutex(format!("lock {n}"));
        all.spawn(async move { (n, lock.acquire().await.unwrap()) });
    }
    let guards = all.join_all().await;
    let (keeper, moves) = session(&server.url()).await;
    keeper
        .batch_execute("BEGIN; SELECT FROM leasehold.keys WHERE name = 'lock 42' FOR UPDATE")
        .await
        .unwrap();
    sleep(lease * 2).await;
    let lost: Vec<usize> = guards.iter().filter(|(_, guard)| !guard.is_valid()).map(|(n, _)| *n).collect();
    assert_eq!(lost, [42], "{} of 100 locks are lost", lost.len());
    keeper.batch_execute("ROLLBACK").await.unwrap();
    drop(keeper);
    let _ = moves.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_another_session_keeps_cost_only_their_own_locks() {
    let server = Server::start();
    let lease = Duration::from_secs(6);
    let client = client(&server.url(), lease).await;
    let mut all = JoinSet::new();
    for n in 0..100 {
        let lock = client.mutex(format!("lock {n:02}"));
        all.spawn(async move { (n, lock.acquire().await.unwrap()) });
    }
    let guards = all.join_all().await;
    let (keeper, moves) = session(&server.url()).await;
    // More rows than the client has connections to wait on.
    let keep = "BEGIN; SELECT FROM leasehold.keys WHERE name < 'lock 50' FOR UPDATE";
    keeper.batch_execute(keep).await.unwrap();
    sleep(lease * 2).await;
    let mut lost: Vec<usize> =
        guards.iter().filter(|(_, guard)| !guard.is_valid()).map(|(n, _)| *n).collect();
    lost.sort_unstable();
    assert_eq!(lost, (0..50).collect::<Vec<_>>(), "{} of 100 locks are lost", lost.len());
    keeper.batch_execute("ROLLBACK").await.unwrap();
    drop(keeper);
    let _ = moves.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_row_costs_no_lock_with_a_shorter_lease() {
    let server = Server::start();
    let client = client(&server.url(), LONG).await;
    let (long, short) = (Duration::from_secs(6), Duration::from_millis(1400));
    let lock = |name: &str, lease| client.mutex(name).with(Options::new().lease(lease));
    let kept = lock("long", long).acquire().await.unwrap();
    let other = lock("short", short).acquire().await.unwrap();
    let (keeper, moves) = session(&server.url()).await;
    keeper.batch_execute("BEGIN; SELECT FROM leasehold.keys WHERE name = 'long' FOR UPDATE").await.unwrap();
    // The client retries the renewal of the kept lock until that is lost, and renews the other one meanwhile.
    let loss = timeout(SOON, kept.lost()).await.unwrap();
    assert!(other.is_valid(), "the other lock is lost too: {:?}", (loss, other.lost().await));
    sleep(short).await;
    assert!(other.is_valid(), "{}", other.lost().await);
    keeper.batch_execute("ROLLBACK").await.unwrap();
    drop(keeper);
    let _ = moves.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_renewals_answers_all_but_the_kept_row() {
    let server = Server::start();
    let store = store(&server.url());
    let claims: Vec<_> = (0..20).map(|n| claim(&format!("lock {n}"))).collect();
    for claim in &claims {
        token(&store, claim).await;
    }
    let (keeper, moves) = session(&server.url()).await;
    keeper.batch_execute("BEGIN; SELECT FROM leasehold.keys WHERE name = 'lock 7' FOR UPDATE").await.unwrap();
    let answers = timeout(SOON, store.renew(&claims)).await.unwrap().expect("the other rows are free");
    for (n, answer) in answers.iter().enumerate() {
        let Answer::Granted(grant) = answer else { panic!("{n}: {answer:?}") };
        assert_eq!(grant.lease.is_some(), n != 7, "{n}: {answer:?}");
    }
    keeper.batch_execute("ROLLBACK").await.unwrap();
    let answers = store.renew(&claims).await.unwrap();
    assert!(
        answers.iter().all(|a| matches!(a, Answer::Granted(grant) if grant.lease.is_some())),
        "{answers:?}"
    );
    drop(keeper);
    let _ = moves.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_waits_its_turn_for_a_row_that_is_kept_for_a_moment() {
    let server = Server::start();
    let store = store(&server.url());
    let held = claim("k");
    token(&store, &held).await;
    let (keeper, moves) = session(&server.url()).await;
    keeper.batch_execute("BEGIN; SELECT FROM leasehold.keys FOR UPDATE").await.unwrap();
    let renewed = {
        let (store, held) = (store.clone(), held.clone());
        tokio::spawn(async move { store.renew(std::slice::from_ref(&held)).await })
    };
    sleep(Duration::from_millis(100)).await;
    keeper.batch_execute("ROLLBACK").await.unwrap();
    let answers = timeout(SOON, renewed).await.unwrap().unwrap().unwrap();
    assert!(matches!(&answers[..], [Answer::Granted(grant)] if grant.lease.is_some()), "{answers:?}");
    drop(keeper);
    let _ = moves.await;
}
