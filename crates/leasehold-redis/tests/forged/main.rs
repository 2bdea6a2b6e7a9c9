//! What users without a right to write the locks can do to them. The users are those of docs/threat-model/redis.md.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[path = "../recipes/mod.rs"]
mod recipes;
mod roles;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Client, Inbox, Key, Promotion, Store, Units, Wake};
use leasehold_redis::Redis;
use leasehold_servers::redis::Redis as Server;
use recipes::recipe;
use tokio::time::{Instant, sleep, timeout};

/// What the monitor may do in addition: publish on every channel.
const PUBLISHES: [&str; 2] = ["&*", "+publish"];
const SOON: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(10);
/// The attacker's token: larger than any that a server gives out.
const WILD: u64 = 8_000_000_000_000_000;

/// A server with all users of the page. The monitor may also publish.
fn guarded() -> Server {
    let server = Server::start();
    let monitor = [recipe("monitor").as_slice(), &PUBLISHES].concat();
    for user in [recipe("locks"), recipe("app"), monitor] {
        assert_eq!(server.cli(&user), "OK", "{user:?}");
    }
    server
}

fn url(server: &Server, user: &str) -> String {
    server.url().replace("redis://", &format!("redis://{user}:secret@"))
}

async fn client(server: &Server) -> Client {
    Client::new(Redis::from_url(&url(server, "locks")).unwrap()).await.unwrap()
}

/// The user who may read and publish.
struct Attacker(redis::Connection);

impl Attacker {
    fn new(server: &Server) -> Self {
        Self(redis::Client::open(url(server, "monitor")).unwrap().get_connection().unwrap())
    }

    /// The inbox, seat and units of the first waiter, as they are stored: see format.lua.
    fn first_waiter(&mut self, name: &str) -> Option<(String, u64, u64)> {
        let members: Vec<Vec<u8>> =
            redis::cmd("ZRANGE").arg(name).arg(2).arg(3).query(&mut self.0).unwrap_or_default();
        let row = members.get(1)?;
        let column = |at: usize| u64::from_be_bytes(row[at - 1..at + 7].try_into().unwrap());
        Some((String::from_utf8(row[65..81].to_vec()).unwrap(), column(58), column(26)))
    }

    /// Says that the first waiter of the lock holds, in every way that needs no secret. Answers how often it was heard.
    fn forge(&mut self, name: &str) -> usize {
        let (inbox, seat, units) = self.first_waiter(name).expect("a claim waits");
        let said = format!("{inbox} {seat} {WILD} {units} {name}");
        let id: Vec<Vec<u8>> = redis::cmd("ZRANGE").arg(name).arg(2).arg(2).query(&mut self.0).unwrap();
        let id: String = id[0].iter().map(|byte| format!("{byte:02x}")).collect();
        let proof =
            |secret: &str| redis::Script::new(&format!("{secret}{said}{secret}")).get_hash().to_owned();
        let guesses =
            ["-".to_owned(), String::new(), "0".repeat(40), proof(""), proof("-"), proof(&id), proof(&inbox)];
        let mut messages: Vec<String> = guesses.iter().map(|proof| format!("{proof} {said}")).collect();
        messages.push(said);
        messages.iter().map(|message| self.publish(&inbox, message.as_bytes())).sum()
    }

    fn publish(&mut self, inbox: &str, message: &[u8]) -> usize {
        let channel = format!("leasehold.inbox:{inbox}");
        redis::cmd("PUBLISH").arg(channel).arg(message).query(&mut self.0).unwrap()
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: never");
        sleep(GLANCE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_who_may_publish_cannot_start_a_waiter() {
    const NAME: &str = "leasehold{:orders/42}";
    let server = guarded();
    let (a, b) = (client(&server).await, client(&server).await);
    let held = a.mutex("orders/42").acquire().await.unwrap();
    let mut waiting = tokio::spawn(async move { b.mutex("orders/42").acquire().await });
    let mut attacker = Attacker::new(&server);
    until("a claim waits", || attacker.first_waiter(NAME).is_some()).await;
    assert_eq!(attacker.forge(NAME), 8, "nobody heard it");
    if let Ok(started) = timeout(Duration::from_millis(1500), &mut waiting).await {
        let token = started.unwrap().unwrap().token();
        panic!(
            "a forged promotion started the waiter with token {token} while another holds {}",
            held.token()
        );
    }
    assert!(held.is_valid());
    held.release().await.unwrap();
    let guard = timeout(SOON, waiting).await.expect("it is promoted").unwrap().unwrap();
    assert!(guard.token() < WILD, "the forged number is believed");
}

/// Remembers what a store says.
#[derive(Debug, Default)]
struct Ears {
    promoted: Mutex<Vec<Promotion>>,
    looks: AtomicUsize,
}

impl Wake for Ears {
    fn promoted(&self, promotion: &Promotion) {
        self.promoted.lock().unwrap().push(promotion.clone());
    }

    fn look(&self, _key: &Key) {
        self.looks.fetch_add(1, Ordering::SeqCst);
    }

    fn look_all(&self) {}

    fn is_gone(&self) -> bool {
        false
    }
}

impl Ears {
    fn heard(&self) -> (usize, usize) {
        (self.promoted.lock().unwrap().len(), self.looks.load(Ordering::SeqCst))
    }
}

/// One client holds, another waits, and the first gives back: what does the second hear?
async fn hand_over(holder: &Redis, waiter: &Redis, inbox: Inbox, ears: &Ears) -> (usize, usize) {
    let claim = |inbox| {
        let mut claim = Claim::new(Key::new("orders/42").unwrap(), 1, Units::Exactly(1)).unwrap();
        claim.inbox = inbox;
        claim
    };
    let (first, second) = (claim(Inbox(1)), claim(inbox));
    assert!(matches!(holder.claim(&first).await.unwrap(), Answer::Granted(_)));
    assert!(matches!(waiter.claim(&second).await.unwrap(), Answer::Waiting(_)));
    let (promoted, looks) = ears.heard();
    holder.release(&first, None).await.unwrap();
    until("the waiter hears of it", || ears.heard() != (promoted, looks)).await;
    waiter.release(&second, None).await.unwrap();
    let (promoted_now, looks_now) = ears.heard();
    (promoted_now - promoted, looks_now - looks)
}

#[tokio::test]
async fn a_promotion_by_the_server_needs_no_round_trip_also_after_the_secret_is_lost_or_replaced() {
    let server = guarded();
    let (holder, waiter) =
        (Redis::from_url(&url(&server, "locks")).unwrap(), Redis::from_url(&url(&server, "locks")).unwrap());
    let (ears, inbox) = (Arc::new(Ears::default()), Inbox(0xabcdef));
    waiter.open(inbox, ears.clone()).await.unwrap();
    assert_eq!(hand_over(&holder, &waiter, inbox, &ears).await, (1, 0));
    let before = server.cli(&["get", "leasehold.secret"]);
    assert_eq!(before.len(), 64);
    server.cli(&["flushall"]);
    assert_eq!(hand_over(&holder, &waiter, inbox, &ears).await, (1, 0));
    // Whichever client looks first puts back the secret that all of them know.
    until("the secret is stored again", || server.cli(&["exists", "leasehold.secret"]) == "1").await;
    assert_eq!(server.cli(&["get", "leasehold.secret"]), before);
    server.cli(&["set", "leasehold.secret", &"5".repeat(64)]);
    let limit = Instant::now() + SOON;
    let mut hints = 0;
    // A client that has just connected has the new one: what the others say is a hint, until they have looked.
    let stranger = Redis::from_url(&url(&server, "locks")).unwrap();
    while hand_over(&stranger, &waiter, inbox, &ears).await != (1, 0) {
        hints += 1;
        assert!(Instant::now() < limit, "the new secret is never learned");
        sleep(GLANCE).await;
    }
    assert!(hints > 0, "a message without a proof was believed");
    while hand_over(&holder, &waiter, inbox, &ears).await != (1, 0) {
        assert!(Instant::now() < limit, "the new secret is never learned");
        sleep(GLANCE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_promotion_that_is_sent_again_starts_nobody() {
    const NAME: &str = "leasehold{:orders/42}";
    let server = guarded();
    let (a, b) = (client(&server).await, client(&server).await);
    let mut attacker = Attacker::new(&server);
    let mut ears = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    ears.send_packed_command(&redis::cmd("PSUBSCRIBE").arg("leasehold.inbox:*").get_packed_command())
        .unwrap();
    ears.recv_response().unwrap();
    let mut said: Vec<Vec<u8>> = Vec::new();
    for round in 0..3 {
        let held = a.mutex("orders/42").acquire().await.unwrap();
        let lock = b.mutex("orders/42");
        let mut waiting = tokio::spawn(async move { lock.acquire().await });
        until("a claim waits", || attacker.first_waiter(NAME).is_some()).await;
        let (inbox, ..) = attacker.first_waiter(NAME).unwrap();
        for message in &said {
            attacker.publish(&inbox, message);
        }
        if round > 0 {
            let started = timeout(Duration::from_millis(1200), &mut waiting).await;
            assert!(started.is_err(), "an old message started the waiter");
        }
        held.release().await.unwrap();
        timeout(SOON, waiting).await.unwrap().unwrap().unwrap().release().await.unwrap();
        // What the server said of it, to be sent again.
        loop {
            let heard: Vec<Vec<u8>> = redis::from_redis_value(ears.recv_response().unwrap()).unwrap();
            if !said.contains(&heard[3]) {
                said.push(heard[3].clone());
                break;
            }
        }
    }
}
