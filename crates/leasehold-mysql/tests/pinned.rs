//! Pinned connections that break between the lock and its token, or that the server's settings would end early.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Answer, Claim, Client, Grant, IfBusy, Key, Options, Store, Units};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::{Mode, Proxy};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::time::{Instant, sleep, timeout};

/// Ends a hang.
const SOON: Duration = Duration::from_secs(60);

fn claim(key: &str) -> Claim {
    let claim = Claim::new(Key::new(key).unwrap(), 1, Units::Exactly(1)).unwrap();
    Claim { lease: Some(SOON), if_busy: IfBusy::Leave, ..claim }
}

async fn connect(server: &MariaDb) -> Conn {
    Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap()
}

/// The connections that a query finds, once there are that many.
async fn found(admin: &mut Conn, many: usize, query: &str) -> Vec<u64> {
    let began = Instant::now();
    loop {
        let seen: Vec<u64> = admin.query(query).await.unwrap();
        if seen.len() >= many {
            return seen;
        }
        assert!(began.elapsed() < SOON, "{} of {many}: {query}", seen.len());
        sleep(Duration::from_millis(2)).await;
    }
}

/// Connections whose draw is blocked by a lock on a table that it writes to. They have their number already.
const DRAWING: &str = "SELECT id FROM information_schema.processlist \
                       WHERE info LIKE 'INSERT INTO leasehold\\_refusals%' OR info LIKE '%; INSERT INTO leasehold\\_refusals%'";
/// Connections of client A that only carry locks.
const CARRYING: &str = "SELECT id FROM information_schema.processlist WHERE user = 'a' AND command = 'Sleep'";

/// A has the lock, but draws its token late, because its only other connection is busy. Meanwhile the connection that carries
/// A's lock is killed, and B gets the lock with its token.
async fn lose_the_lock_before_the_draw(mode: &str) -> (leasehold_core::Result<Answer>, Grant) {
    let server = MariaDb::start();
    server.sql("CREATE USER a@'%', b@'%'; GRANT ALL ON test.* TO a@'%', b@'%'");
    let store = |user: &str, connections| {
        let url = server.url().replace("root@", &format!("{user}@"));
        Mysql::from_url(&format!("{url}?mode={mode}&timeout=30s&connections={connections}")).unwrap()
    };
    let (one, other) = (store("a", 1), store("b", 8));
    let (mut admin, mut keeper) = (connect(&server).await, connect(&server).await);
    // Makes the tables.
    assert!(other.inspect(&claim("k").key).await.unwrap().is_none());
    keeper.query_drop("LOCK TABLES leasehold_refusals WRITE").await.unwrap();
    let ask = |key: &'static str| {
        let one = one.clone();
        tokio::spawn(async move { one.claim(&claim(key)).await })
    };
    let busy = ask("busy");
    found(&mut admin, 1, DRAWING).await;
    let stale = ask("k");
    while other.inspect(&claim("k").key).await.unwrap().is_none() {
        assert!(!stale.is_finished(), "it cannot have a token");
    }
    for id in found(&mut admin, 1, CARRYING).await {
        admin.query_drop(format!("KILL {id}")).await.unwrap();
    }
    let next = tokio::spawn(async move {
        loop {
            match other.claim(&claim("k")).await.unwrap() {
                Answer::Granted(grant) => return grant,
                answer => assert_eq!(answer, Answer::Busy),
            }
        }
    });
    found(&mut admin, 2, DRAWING).await;
    keeper.query_drop("UNLOCK TABLES").await.unwrap();
    let _ = busy.await.unwrap();
    (stale.await.unwrap(), next.await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_lock_lost_before_its_token_is_drawn_is_not_granted() {
    let (stale, next) = timeout(SOON, lose_the_lock_before_the_draw("advisory")).await.unwrap();
    assert!(!matches!(stale, Ok(Answer::Granted(_))), "{stale:?} beside {next:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_lock_lost_before_its_token_is_drawn_is_not_granted() {
    let (stale, next) = timeout(SOON, lose_the_lock_before_the_draw("rowlock")).await.unwrap();
    assert!(!matches!(stale, Ok(Answer::Granted(_))), "{stale:?} beside {next:?}");
}

/// The server's own limits on idle transactions are shorter than the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_limits_on_idle_transactions_end_no_row_lock() {
    const LEASE: Duration = Duration::from_secs(9);
    let limits =
        ["idle_transaction_timeout", "idle_write_transaction_timeout", "idle_readonly_transaction_timeout"];
    for limit in limits {
        let server = MariaDb::start();
        server.sql(&format!("SET GLOBAL {limit} = 3"));
        let proxy = Proxy::to(server.port());
        let client = async |port| {
            let url = format!("mysql://root@127.0.0.1:{port}/test?mode=rowlock&connect_timeout=30s");
            let builder = Client::builder().defaults(Options::new().lease(LEASE));
            builder.connect(Mysql::from_url(&url).unwrap()).await.unwrap()
        };
        let (holder, other) = (client(proxy.port()).await, client(server.port()).await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        // As if the holder was stopped.
        proxy.set(Mode::Hold);
        let next = timeout(SOON, other.mutex("k").acquire()).await.unwrap().unwrap();
        assert!(
            !guard.is_valid(),
            "{limit}: two valid guards, tokens {} and {}",
            guard.token(),
            next.token()
        );
    }
}
