//! What other roles of the database can do to locks. The recipes are those of docs/threat-model/postgres.md.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_core::{Inbox, Promotion, Wake};
use leasehold_postgres::init_sql;
use leasehold_servers::postgres::Bouncer;
use leasehold_servers::wait_until;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use tokio_postgres::AsyncMessage;
use tokio_postgres::error::SqlState;

use super::*;

/// A server with the lock tables, a lock client `app`, and a role `monitor` that may read everything but the secret: more
/// than its recipe gives it.
fn watched() -> Server {
    let server = Server::start();
    server.sql(&init_sql("leasehold").unwrap());
    server.sql(&recipes::rights("app"));
    server.sql(&recipes::rights("monitor"));
    server.sql(
        "GRANT SELECT ON leasehold.store, leasehold.keys, leasehold.claims, leasehold.refusals, leasehold.rows,
         leasehold.awake TO monitor; GRANT SELECT ON SEQUENCE leasehold.numbers TO monitor",
    );
    server
}

fn as_role(server: &Server, role: &str) -> String {
    server.url().replace("postgres@", &format!("{role}@"))
}

/// What a forger would send to the waiter of lock `k`, in the form of this release and of the one before it.
const FORGERIES: [&str; 3] = [
    "body",
    "body || ' ' || encode(sha256(convert_to(body, 'UTF8')), 'hex')",
    "
    body || ' ' || encode(sha256(convert_to(channel || ' ' || body, 'UTF8')), 'hex')",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_the_tables_cannot_forge_a_promotion() {
    let server = watched();
    let app = as_role(&server, "app");
    let (one, two) = (client(&app, LONG).await, client(&app, LONG).await);
    let guard = one.mutex("k").acquire().await.unwrap();
    let waits = tokio::spawn(async move { two.mutex("k").acquire().await.unwrap() });
    while one.inspect("k").await.unwrap().unwrap().waiters.is_empty() {}
    let (monitor, moves) = session(&as_role(&server, "monitor")).await;
    for forgery in FORGERIES {
        let forge = format!(
            "WITH waiter AS (SELECT 'leasehold_' || to_hex(inbox) AS channel,
                concat_ws(' ', seat, seat + 1000, wanted, name) AS body FROM leasehold.claims WHERE held = 0)
             SELECT pg_notify(channel, {forgery}) FROM waiter"
        );
        assert_eq!(monitor.query(&forge, &[]).await.unwrap().len(), 1);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waits.is_finished(), "two hold: the waiter believed {forgery}");
    }
    let first = guard.token();
    guard.release().await.unwrap();
    assert!(timeout(SOON, waits).await.unwrap().unwrap().token() > first);
    drop(monitor);
    let _ = moves.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_of_another_user_are_never_called() {
    let server = Server::start();
    server.sql(recipes::HOSTILE);
    // One that takes our settings, and two that do not.
    let bouncers = [&[][..], &["ignore_startup_parameters = options"]].map(|more| Bouncer::to(&server, more));
    for url in [
        server.url(),
        bouncers[0].url(),
        bouncers[1].url(),
        in_mode(&server, "advisory"),
        in_mode(&server, "rowlock"),
    ] {
        let (one, two) = (client(&url, LONG).await, client(&url, LONG).await);
        let guard = one.mutex("k").acquire().await.unwrap();
        let waits = tokio::spawn(async move { two.mutex("k").acquire().await.map(|guard| guard.token()) });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let first = guard.token();
        guard.release().await.unwrap();
        assert!(timeout(SOON, waits).await.unwrap().unwrap().unwrap() > first, "{url}");
    }
}

/// A connection that listens to a channel, and what it hears: channel and payload.
async fn listener(url: &str, channel: &str) -> (tokio_postgres::Client, UnboundedReceiver<(String, String)>) {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (heard, hears) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(said) = message {
                let _ = heard.send((said.channel().to_owned(), said.payload().to_owned()));
            }
        }
    });
    client.batch_execute(&format!("LISTEN {channel}")).await.unwrap();
    (client, hears)
}

fn until_waiting(server: &Server) {
    let waiting = "SELECT count(*) FROM leasehold.claims WHERE held < wanted";
    wait_until("a claim waits", SOON, || server.sql(waiting) == "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_sent_again_does_no_harm() {
    let server = watched();
    let app = as_role(&server, "app");
    let (one, two) = (client(&app, LONG).await, client(&app, LONG).await);
    let lock = one.rwlock("k");
    // An upgrade that waits, is promoted, goes back and waits again: the same seat all the time.
    let reader = two.rwlock("k").read().acquire().await.unwrap();
    let guard = lock.upgradable().acquire().await.unwrap();
    let inbox = server.sql("SELECT to_hex(inbox) FROM leasehold.claims WHERE held > 1");
    let (monitor, mut heard) = listener(&as_role(&server, "monitor"), &format!("leasehold_{inbox}")).await;
    let upgraded = tokio::spawn(async move { guard.upgrade().await.unwrap() });
    until_waiting(&server);
    reader.release().await.unwrap();
    let guard = timeout(SOON, upgraded).await.unwrap().unwrap();
    let genuine = timeout(SOON, heard.recv()).await.unwrap().unwrap();
    let guard = guard.downgrade_to_upgradable().await.unwrap();
    let reader = two.rwlock("k").read().acquire().await.unwrap();
    let again = tokio::spawn(async move { guard.upgrade().await.unwrap() });
    until_waiting(&server);
    monitor.execute("SELECT pg_notify($1, $2)", &[&genuine.0, &genuine.1]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!again.is_finished(), "a writer beside a reader");
    reader.release().await.unwrap();
    let writer = timeout(SOON, again).await.unwrap().unwrap();
    writer.release().await.unwrap();
}

/// What a client would be told.
#[derive(Debug, Default)]
struct Told {
    promoted: Mutex<Vec<u64>>,
    looks: AtomicUsize,
}

impl Wake for Told {
    fn promoted(&self, promotion: &Promotion) {
        self.promoted.lock().unwrap().push(promotion.seat);
    }

    fn look(&self, _: &Key) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    fn look_all(&self) {}

    fn is_gone(&self) -> bool {
        false
    }
}

/// Passes a lock from one store to another, and waits until that is told. Returns whether it was believed.
async fn hand_over(one: &Postgres, two: &Postgres, told: &Told) -> bool {
    let (holder, waiter) = (claim("k"), Claim { inbox: Inbox(7), ..claim("k") });
    token(one, &holder).await;
    let Answer::Waiting(place) = two.claim(&waiter).await.unwrap() else { panic!("it is held") };
    let looks = told.looks.load(Ordering::Relaxed);
    one.release(&holder, None).await.unwrap();
    let is_believed = || told.promoted.lock().unwrap().contains(&place.seat);
    wait_until("the waiter is told", SOON, || is_believed() || told.looks.load(Ordering::Relaxed) > looks);
    let believed = is_believed();
    two.release(&waiter, None).await.unwrap();
    believed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_the_functions_is_believed_and_a_new_secret_is_read() {
    let server = watched();
    let app = as_role(&server, "app");
    let (one, two, told) = (store(&app), store(&app), Arc::new(Told::default()));
    two.open(Inbox(7), told.clone()).await.unwrap();
    assert!(hand_over(&one, &two, &told).await, "it has a proof");
    server.sql("UPDATE leasehold.secret SET secret = 'another'");
    assert!(!hand_over(&one, &two, &told).await, "the client has the old secret");
    let end = Instant::now() + SOON;
    while !hand_over(&one, &two, &told).await {
        assert!(Instant::now() < end, "the new secret is not read");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    server.sql("DELETE FROM leasehold.secret");
    assert!(!hand_over(&one, &two, &told).await, "without a secret nothing is proven");
}

/// Locks that Leasehold or an attacker could think of: one for each table of the schema, and the one of its creation.
const ADVISORY: &str =
    "SELECT pg_advisory_lock(c.oid::bigint) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'leasehold';
    SELECT pg_advisory_lock(hashtextextended('\"leasehold\".init', 0))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stranger_that_holds_advisory_locks_stops_no_lease_client() {
    let mut server = watched();
    server.sql("CREATE ROLE stranger LOGIN");
    let app = as_role(&server, "app");
    let before = run(&app).await;
    server.restart();
    let (stranger, moves) = session(&as_role(&server, "stranger")).await;
    stranger.batch_execute(ADVISORY).await.unwrap();
    // The first session after a restart moves the sequence.
    let first = run(&app).await;
    assert!(first > before, "{first} after {before}");
    // So does a claim that asks for a token further ahead, when the clock allows it.
    let (store, end) = (store(&app), Instant::now() + SOON);
    let far = Claim { token_above: first + 1_000_000, ..claim("far") };
    let granted = loop {
        match store.claim(&far).await {
            Ok(Answer::Granted(grant)) => break grant.token,
            Err(error) if Instant::now() < end => assert!(error.is_retryable(), "{error}"),
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(granted > far.token_above);
    // And the client that creates a missing schema.
    server.sql("DROP SCHEMA leasehold CASCADE");
    assert!(run(&server.url()).await > granted);
    drop(stranger);
    let _ = moves.await;
}

/// What this role may not do.
async fn denied(url: &str, statements: &[&str]) {
    let (role, moves) = session(url).await;
    for statement in statements {
        let error = role.batch_execute(statement).await.expect_err(statement);
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{statement}: {error:?}");
    }
    drop(role);
    let _ = moves.await;
}

const WRITES: [&str; 8] = [
    "DELETE FROM leasehold.claims",
    "UPDATE leasehold.claims SET expires = 0",
    "DELETE FROM leasehold.keys",
    "INSERT INTO leasehold.refusals VALUES ('x', 0)",
    "SELECT leasehold.release_1(name, id, NULL, 0) FROM leasehold.claims",
    "SELECT leasehold.evict_1(name, token) FROM leasehold.claims",
    "SELECT nextval('leasehold.numbers')",
    "SELECT setval('leasehold.numbers', 1)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_the_tables_cannot_write() {
    let server = watched();
    let guard = client(&as_role(&server, "app"), LONG).await.mutex("k").acquire().await.unwrap();
    denied(&as_role(&server, "monitor"), &WRITES).await;
    denied(&as_role(&server, "monitor"), &["SELECT * FROM leasehold.secret", "SELECT leasehold.greet_1()"])
        .await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_can_only_look() {
    let server = Server::start();
    server.sql(&init_sql("leasehold").unwrap());
    server.sql(&recipes::rights("app"));
    server.sql(&recipes::rights("monitor"));
    let guard = client(&as_role(&server, "app"), LONG).await.mutex("k").acquire().await.unwrap();
    let url = as_role(&server, "monitor");
    let (monitor, moves) = session(&url).await;
    let seen = monitor.query_one("SELECT token FROM leasehold.locks WHERE name = 'k'", &[]).await.unwrap();
    assert_eq!(seen.get::<_, i64>(0).unsigned_abs(), guard.token());
    denied(&url, &WRITES).await;
    denied(&url, &["SELECT * FROM leasehold.claims", "SELECT * FROM leasehold.secret"]).await;
    guard.release().await.unwrap();
    drop(monitor);
    let _ = moves.await;
}

/// Every table with something to learn from.
const READS: [&str; 4] = [
    "SELECT * FROM leasehold.locks",
    "SELECT * FROM leasehold.claims",
    "SELECT * FROM leasehold.secret",
    "SELECT last_value FROM leasehold.numbers",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_of_other_tables_cannot_touch_a_lock() {
    let server = watched();
    server.sql(
        "CREATE ROLE writer LOGIN; CREATE TABLE public.orders (id int); GRANT ALL ON public.orders TO writer",
    );
    let guard = client(&as_role(&server, "app"), LONG).await.mutex("k").acquire().await.unwrap();
    let url = as_role(&server, "writer");
    let (writer, moves) = session(&url).await;
    writer.batch_execute("INSERT INTO public.orders VALUES (1); DELETE FROM public.orders").await.unwrap();
    denied(&url, &READS).await;
    denied(&url, &WRITES).await;
    denied(
        &url,
        &[
            "DO $$ BEGIN LOCK TABLE leasehold.keys IN SHARE MODE; END $$",
            "SELECT FROM leasehold.store FOR UPDATE",
        ],
    )
    .await;
    guard.renew(LONG).await.unwrap();
    guard.release().await.unwrap();
    drop(writer);
    let _ = moves.await;
}

/// The page warns of both: such a role can forge promotions, though it cannot write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_of_all_data_can_read_the_secret() {
    let server = Server::start();
    server.sql(
        "CREATE ROLE everything LOGIN; GRANT pg_read_all_data TO everything; CREATE ROLE defaults LOGIN",
    );
    server.sql("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO defaults");
    server.sql("ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO defaults");
    server.sql(&init_sql("leasehold").unwrap());
    server.sql(&recipes::rights("monitor"));
    let guard = client(&server.url(), LONG).await.mutex("k").acquire().await.unwrap();
    let read = "SELECT secret FROM leasehold.secret";
    let may_read =
        |role| server.sql(&format!("SELECT has_table_privilege('{role}', 'leasehold.secret', 'SELECT')"));
    for role in ["everything", "defaults"] {
        assert_eq!(may_read(role), "t");
        let url = as_role(&server, role);
        let (reader, moves) = session(&url).await;
        assert_eq!(reader.query_one(read, &[]).await.unwrap().get::<_, Vec<u8>>(0).len(), 32, "{role}");
        denied(&url, &WRITES).await;
        drop(reader);
        let _ = moves.await;
    }
    assert_eq!(may_read("monitor"), "f");
    denied(&as_role(&server, "monitor"), &[read]).await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_client_cannot_change_the_schema() {
    let server = watched();
    let statements = [
        "CREATE OR REPLACE FUNCTION leasehold.clock_1() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
        "CREATE TABLE leasehold.x (y int)",
        "ALTER TABLE leasehold.claims ADD x int",
        "DROP TABLE leasehold.claims",
        "TRUNCATE leasehold.claims",
        "UPDATE leasehold.secret SET secret = ''",
    ];
    denied(&as_role(&server, "app"), &statements).await;
}
