//! The accounts of docs/threat-model/mysql.md: what its statements allow is enough, and what it says they cannot do they cannot.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Client, Guard, Options};
use leasehold_mysql::{Mysql, init_sql};
use leasehold_servers::mariadb::{Kind, MariaDb};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, Row};

const PAGE: &str = include_str!("../../../docs/threat-model/mysql.md");

/// A server with the tables and accounts of the page. The database of tests is not called `app`.
fn server() -> MariaDb {
    let server = MariaDb::start();
    server.sql(&format!("USE test; {}", init_sql("leasehold_").unwrap()));
    server.sql("CREATE USER locks@'%', monitor@'%', stranger@'%'");
    let grants = PAGE.lines().filter(|line| line.starts_with("GRANT "));
    for grant in grants.clone() {
        server.sql(&grant.replace(" ON app.", " ON test."));
    }
    if Kind::tested() == Kind::MySql {
        server.sql("GRANT DELETE ON test.leasehold_numbers TO locks@'%'");
    }
    assert!(grants.count() > 5, "the page has a recipe");
    server
}

async fn client(server: &MariaDb, mode: &str) -> Client {
    let url =
        format!("{}?mode={mode}&timeout=30s&connect_timeout=30s", server.url().replace("root@", "locks@"));
    let builder = Client::builder().defaults(Options::new().lease(Duration::from_secs(60)));
    builder.connect(Mysql::from_url(&url).unwrap()).await.unwrap()
}

async fn held(server: &MariaDb, mode: &str) -> (Client, Guard) {
    let client = client(server, mode).await;
    let guard = client.mutex("k").acquire().await.unwrap();
    (client, guard)
}

async fn connect(server: &MariaDb, user: &str) -> Conn {
    let url = server.url().replace("root@", &format!("{user}@"));
    // Not every account may use the database.
    let url = url.strip_suffix("test").unwrap();
    Conn::new(Opts::from_url(url).unwrap()).await.unwrap()
}

/// Tries statements that must be denied.
async fn denied(conn: &mut Conn, statements: &[&str]) {
    for statement in statements {
        match conn.query_drop(*statement).await {
            // Access denied: to the database, a table, an operation or a procedure.
            Err(Error::Server(said)) => {
                assert!(matches!(said.code, 1044 | 1142 | 1143 | 1227 | 1410), "{statement}: {said}");
            }
            other => panic!("{statement}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_client_needs_no_more_than_its_rights() {
    let server = server();
    for mode in ["lease", "advisory", "rowlock"] {
        let (first, second) = (client(&server, mode).await, client(&server, mode).await);
        for _ in 0..40 {
            let guard = first.mutex("k").acquire().await.unwrap();
            assert!(second.mutex("k").try_acquire().await.unwrap().is_none(), "{mode}");
            guard.renew(Duration::from_secs(60)).await.unwrap();
            guard.release().await.unwrap();
        }
        let guard = first.mutex("k").acquire().await.unwrap();
        let lock = second.mutex("k");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        assert!(first.inspect("k").await.unwrap().is_some(), "{mode}");
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        if mode == "lease" {
            let _guard = first.mutex("k").acquire().await.unwrap();
            let late = second.mutex("k").acquire_within(Duration::from_millis(200)).await.unwrap();
            assert!(late.is_none());
            assert_eq!(first.list("").await.unwrap().len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_client_does_not_change_the_tables() {
    let server = server();
    let mut conn = connect(&server, "locks").await;
    denied(
        &mut conn,
        &[
            "DROP TABLE test.leasehold_claims",
            "ALTER TABLE test.leasehold_claims ENGINE = Aria",
            "CREATE TABLE test.mine (x INT)",
            "CREATE TRIGGER test.mine BEFORE INSERT ON test.leasehold_claims FOR EACH ROW SET @x = NEW.id",
            "UPDATE test.leasehold_store SET born = 0",
            "GRANT SELECT ON test.leasehold_claims TO stranger@'%'",
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_reads_no_secret() {
    let server = server();
    let (_client, guard) = held(&server, "lease").await;
    let mut conn = connect(&server, "monitor").await;
    let seen: Vec<Row> = conn.query("SELECT name, state, token FROM test.leasehold_locks").await.unwrap();
    assert_eq!(seen.len(), 1);
    let token: Option<u64> = seen[0].get(2);
    assert_eq!(token, Some(guard.token()));
    // Everything that it sees, in every form in which an id could be written.
    let id = server.sql("SELECT HEX(id) FROM test.leasehold_claims").to_lowercase();
    let shown = [
        "SELECT * FROM test.leasehold_locks",
        "SHOW FULL PROCESSLIST",
        "SHOW CREATE VIEW test.leasehold_locks",
    ];
    for statement in &shown[..2] {
        let rows: Vec<Row> = conn.query(*statement).await.unwrap();
        assert!(!format!("{rows:?}").to_lowercase().contains(&id), "{statement}");
    }
    let processes: Vec<Row> = conn.query("SHOW FULL PROCESSLIST").await.unwrap();
    assert_eq!(processes.len(), 1, "it sees the connections of others");
    denied(
        &mut conn,
        &[
            "SELECT id FROM test.leasehold_claims",
            "SELECT * FROM test.leasehold_keys",
            "SELECT * FROM test.leasehold_refusals",
            "SELECT * FROM test.leasehold_numbers",
            shown[2],
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_changes_nothing() {
    let server = server();
    let (_client, guard) = held(&server, "lease").await;
    let mut conn = connect(&server, "monitor").await;
    denied(
        &mut conn,
        &[
            "DELETE FROM test.leasehold_locks",
            "UPDATE test.leasehold_locks SET units = 0",
            "INSERT INTO test.leasehold_locks (units) VALUES (1)",
            "DELETE FROM test.leasehold_claims",
            "SELECT NEXT VALUE FOR test.leasehold_numbers",
            "SELECT SETVAL(test.leasehold_numbers, 1)",
            "LOCK TABLES test.leasehold_locks WRITE",
        ],
    )
    .await;
    guard.renew(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_blocks_no_lock() {
    let server = server();
    let (client, guard) = held(&server, "lease").await;
    let mut conn = connect(&server, "monitor").await;
    conn.query_drop("START TRANSACTION").await.unwrap();
    let seen: Vec<Row> = conn.query("SELECT * FROM test.leasehold_locks FOR UPDATE").await.unwrap();
    assert_eq!(seen.len(), 1);
    guard.renew(Duration::from_secs(120)).await.unwrap();
    guard.release().await.unwrap();
    let next = client.mutex("k").try_acquire().await.unwrap();
    next.expect("it is free").release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_of_other_tables_cannot_touch_a_lock() {
    let server = server();
    server.sql(
        "CREATE TABLE test.orders (id INT) ENGINE = InnoDB; CREATE USER writer@'%';
         GRANT SELECT, INSERT, UPDATE, DELETE ON test.orders TO writer@'%'",
    );
    let mut conn = connect(&server, "writer").await;
    conn.query_drop("INSERT INTO test.orders VALUES (1); DELETE FROM test.orders").await.unwrap();
    let draw = match Kind::tested() {
        Kind::MariaDb => "SELECT NEXT VALUE FOR test.leasehold_numbers",
        Kind::MySql => "INSERT INTO test.leasehold_numbers VALUES (NULL)",
    };
    for mode in ["lease", "advisory", "rowlock"] {
        let (_client, guard) = held(&server, mode).await;
        denied(
            &mut conn,
            &[
                "SELECT * FROM test.leasehold_locks",
                "SELECT * FROM test.leasehold_keys FOR UPDATE",
                "SELECT * FROM test.leasehold_claims",
                "SELECT * FROM test.leasehold_rows LOCK IN SHARE MODE",
                "UPDATE test.leasehold_claims SET expires = 0",
                "DELETE FROM test.leasehold_keys",
                "INSERT INTO test.leasehold_refusals VALUES (0, 0)",
                "DELETE test.leasehold_claims FROM test.orders JOIN test.leasehold_claims",
                "LOCK TABLES test.leasehold_keys WRITE",
                "CREATE TRIGGER test.mine BEFORE INSERT ON test.leasehold_claims FOR EACH ROW SET @x = NEW.id",
                draw,
            ],
        )
        .await;
        guard.renew(Duration::from_secs(60)).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_sees_and_changes_nothing() {
    let server = server();
    let mut conn = connect(&server, "stranger").await;
    let name = |key: &str| format!("CONCAT('leasehold.', LEFT(SHA2('test/leasehold_/{key}', 256), 54))");
    for mode in ["lease", "advisory", "rowlock"] {
        let (_client, guard) = held(&server, mode).await;
        denied(
            &mut conn,
            &[
                "SELECT * FROM test.leasehold_locks",
                "SELECT * FROM test.leasehold_claims",
                "DELETE FROM test.leasehold_rows",
                "SELECT SETVAL(test.leasehold_numbers, 1)",
            ],
        )
        .await;
        let released: Option<Option<i64>> =
            conn.query_first(format!("SELECT RELEASE_LOCK({})", name("k"))).await.unwrap();
        assert_ne!(released, Some(Some(1)), "{mode}");
        guard.release().await.unwrap();
    }
    // What the page admits: anybody can take a named lock that is free.
    let taken: Option<i64> = conn.query_first(format!("SELECT GET_LOCK({}, 0)", name("k"))).await.unwrap();
    assert_eq!(taken, Some(1));
    let client = client(&server, "advisory").await;
    assert!(client.mutex("k").try_acquire().await.unwrap().is_none());
}
