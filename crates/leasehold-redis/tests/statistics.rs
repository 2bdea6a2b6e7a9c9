//! What things cost, counted by the server itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::{Answer, Change, Claim, Client, Error, IfBusy, Key, Options, Store, Units};
use leasehold_redis::Redis;
use leasehold_servers::redis::Redis as Server;
use tokio::time::{Instant, sleep};

/// Everything below must have happened by then, however busy the machine is.
const SOON: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(10);

async fn connect(server: &Server) -> Result<Client, Error> {
    Client::new(Redis::from_url(&server.url())?).await
}

/// How often each command ran since the last reset, those inside of scripts included.
fn counts(server: &Server) -> HashMap<String, u64> {
    let text = server.cli(&["info", "commandstats"]);
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("cmdstat_")?.split_once(":calls="));
    lines.filter_map(|(name, rest)| Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))).collect()
}

fn count(server: &Server, command: &str) -> u64 {
    counts(server).get(command).copied().unwrap_or(0)
}

fn reset(server: &Server) {
    server.cli(&["config", "resetstat"]);
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: never");
        sleep(GLANCE).await;
    }
}

#[tokio::test]
async fn an_uncontended_acquire_is_one_command_and_so_is_its_release() {
    let server = Server::start();
    let client = connect(&server).await.unwrap();
    // The server learns the scripts.
    client.mutex("first").acquire().await.unwrap().release().await.unwrap();
    reset(&server);
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    assert_eq!((count(&server, "evalsha"), count(&server, "eval")), (1, 0));
    guard.release().await.unwrap();
    assert_eq!((count(&server, "evalsha"), count(&server, "eval")), (2, 0));
    assert_eq!(count(&server, "publish"), 0, "nobody waits, and somebody was told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_got_another_name_is_soon_known_by_it() {
    const PAIRS: u64 = 200;
    let primary = Server::start();
    let client = connect(&primary).await.unwrap();
    client.mutex("first").acquire().await.unwrap().release().await.unwrap();
    // The first replica that comes changes it.
    let _replica = Server::replica_of(&primary, &[]);
    let limit = Instant::now() + SOON;
    loop {
        let (before, began) = (count(&primary, "info"), Instant::now());
        for _ in 0..PAIRS {
            client.mutex("orders/42").acquire().await.unwrap().release().await.unwrap();
        }
        // One is ours; one in a second is the scripts' own.
        let asked = count(&primary, "info") - before;
        if asked <= 3 + began.elapsed().as_secs() {
            break;
        }
        assert!(Instant::now() < limit, "{asked} of {PAIRS} had to ask who the server is");
    }
}

#[tokio::test]
async fn a_contended_hand_over_is_the_release_and_one_message() {
    let server = Server::start();
    let (one, two) = (connect(&server).await.unwrap(), connect(&server).await.unwrap());
    one.mutex("first").acquire().await.unwrap().release().await.unwrap();
    let held = one.mutex("orders/42").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { two.mutex("orders/42").acquire().await });
    until("somebody waits", || {
        server.cli(&["zcard", "leasehold{:orders/42}"]).parse::<u64>().is_ok_and(|n| n > 1)
    })
    .await;
    reset(&server);
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    let commands = count(&server, "evalsha") + count(&server, "eval");
    // The release; and as soon as it likes the renewal that starts the full lease.
    assert!((1..=3).contains(&commands), "{:?}", counts(&server));
    assert_eq!(count(&server, "publish"), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_one_key_with_an_end_however_many_wait() {
    let server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    let key = Key::new("orders/42").unwrap();
    let mut claims = Vec::new();
    for _ in 0..20 {
        let claim = Claim::new(key.clone(), 1, Units::Exactly(1)).unwrap();
        store.claim(&claim).await.unwrap();
        claims.push(claim);
        // And the fence, and the secret.
        assert_eq!(server.cli(&["dbsize"]), "3");
        let left: u64 = server.cli(&["pttl", "leasehold{:orders/42}"]).parse().unwrap();
        assert!((1..=60_000).contains(&left), "{left} ms");
    }
    for claim in &claims {
        store.release(claim, None).await.unwrap();
    }
    assert_eq!(
        (server.cli(&["keys", "leasehold{*"]), server.cli(&["dbsize"])),
        (String::new(), "2".to_owned())
    );
}

#[tokio::test]
async fn a_refused_id_is_forgotten_in_time() {
    let server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    let claim = Claim::new(Key::new("orders/42").unwrap(), 1, Units::Exactly(1)).unwrap();
    store.release(&claim, Some(Duration::from_millis(300))).await.unwrap();
    assert!(server.cli(&["keys", "*"]).contains("refused"));
    // But not the secret.
    until("the mark is gone", || server.cli(&["dbsize"]) == "1").await;
}

#[tokio::test]
async fn ten_thousand_locks_are_renewed_by_sixty_commands() {
    const LOCKS: usize = 10_000;
    let server = Server::start();
    let client = connect(&server).await.unwrap();
    let options = Options::new().lease(Duration::from_secs(15));
    let mut held = Vec::new();
    for batch in 0..LOCKS / 100 {
        let acquire = |n| {
            let lock = client.mutex(format!("lock {batch} {n}")).with(options.clone());
            async move { lock.acquire().await }
        };
        held.extend(try_join_all((0..100).map(acquire)).await.unwrap());
    }
    reset(&server);
    // A renewal writes its lock once.
    until("all are renewed", || count(&server, "set") >= LOCKS as u64).await;
    let commands = count(&server, "evalsha") + count(&server, "eval");
    assert!(commands <= 60, "{commands} commands");
    assert!(held.iter().all(|guard| guard.is_valid()));
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_client_has_one_subscription_whatever_it_waits_for() {
    const LOCKS: usize = 1_000;
    let server = Server::start();
    let (one, two) = (connect(&server).await.unwrap(), connect(&server).await.unwrap());
    let mut held = Vec::new();
    for n in 0..LOCKS {
        held.push(one.mutex(format!("lock {n}")).acquire().await.unwrap());
    }
    let waiting: Vec<_> = (0..LOCKS)
        .map(|n| {
            let lock = two.mutex(format!("lock {n}"));
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    until("all wait", || {
        let waits = "local n = 0 for i = 0, 999 do n = n + redis.call('ZCOUNT', 'leasehold{:lock ' .. i .. '}', 1, '+inf') / 2 end return n";
        server.cli(&["eval", &format!("local ok, n = pcall(function() {waits} end) return ok and n or 0"), "0"]) == "1000"
    })
    .await;
    assert_eq!(server.cli(&["pubsub", "channels"]).lines().count(), 2);
    assert_eq!(server.cli(&["pubsub", "numpat"]), "0");
    drop(held);
    for waiter in waiting {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// Microseconds of the server per claim that queues and release that hands over, with so many in between: the best
/// of some rounds, because the machine has other things to do.
async fn cost(server: &Server, waiters: usize) -> f64 {
    const ROUND: usize = 50;
    let store = Redis::from_url(&server.url()).unwrap();
    let key = Key::new(format!("queue of {waiters}")).unwrap();
    let mut queue = std::collections::VecDeque::new();
    let fresh = || Claim::new(key.clone(), 1, Units::Exactly(1)).unwrap();
    for _ in 0..=waiters {
        queue.push_back(fresh());
    }
    for claim in &queue {
        store.claim(claim).await.unwrap();
    }
    let mut best = f64::MAX;
    for _ in 0..20 {
        reset(server);
        for _ in 0..ROUND {
            queue.push_back(fresh());
            store.claim(queue.back().unwrap()).await.unwrap();
            store.release(&queue.pop_front().unwrap(), None).await.unwrap();
        }
        let text = server.cli(&["info", "commandstats"]);
        let line = text.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
        let micros = line.split("usec_per_call=").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        best = best.min(micros.parse::<f64>().unwrap() * 2.0);
    }
    best
}

#[tokio::test]
async fn a_long_queue_costs_hardly_more_than_a_short_one() {
    let server = Server::start();
    let (short, long) = (cost(&server, 10).await, cost(&server, 10_000).await);
    assert!(long <= short * 2.0, "{short} us with ten waiters, {long} us with ten thousand");
}

/// A lock with one holder and so many waiters, and the holder's token.
async fn crowded(server: &Server, store: &Redis, waiters: usize) -> (Key, u64) {
    let key = Key::new(format!("crowd/{waiters}")).unwrap();
    let claim = || {
        let mut claim = Claim::new(key.clone(), 1, Units::Exactly(1)).unwrap();
        (claim.lease, claim.patience) = (Some(20 * SOON), 20 * SOON);
        claim
    };
    let Answer::Granted(grant) = store.claim(&claim()).await.unwrap() else { panic!("it is free") };
    for _ in 0..waiters / 100 {
        let claims: Vec<_> = (0..100).map(|_| claim()).collect();
        try_join_all(claims.iter().map(|claim| store.claim(claim))).await.unwrap();
    }
    let count: usize = server.cli(&["zcard", &format!("leasehold{{:{}}}", key.as_str())]).parse().unwrap();
    // The head, what is known about the set, and two members for each that waits.
    assert_eq!(count, 2 + 2 * waiters);
    (key, grant.token)
}

/// How long the server was at work for a script since the last reset, in microseconds.
fn script_time(log: &mut redis::Connection) -> u64 {
    /// Number, time, microseconds, words, and the client's address and name.
    type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);
    let entries: Vec<Entry> = redis::cmd("SLOWLOG").arg("GET").arg(-1).query(log).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(log).unwrap();
    entries.iter().filter(|entry| entry.3[0] == b"EVALSHA").map(|entry| entry.2).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_walks_through_the_whole_queue() {
    let server = Server::start();
    server.cli(&["config", "set", "slowlog-max-len", "10000"]);
    let mut log = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let store = Redis::from_url(&format!("{}?timeout=20s", server.url())).unwrap();
    let mut times = Vec::new();
    for waiters in [100, 20_000] {
        let (key, token) = crowded(&server, &store, waiters).await;
        let other = Claim::new(key.clone(), 7, Units::Exactly(1)).unwrap();
        let mut quickest = [u64::MAX; 4];
        server.cli(&["config", "set", "slowlog-log-slower-than", "0"]);
        for round in 0..20 {
            if round == 1 {
                // The first round loads the scripts, and the server answers their first EVALSHA without running anything.
                quickest = [u64::MAX; 4];
            }
            script_time(&mut log);
            assert!(store.claim(&other).await.is_err());
            quickest[0] = quickest[0].min(script_time(&mut log));
            store.amend(&other, &Change::Ask(token)).await.unwrap();
            quickest[1] = quickest[1].min(script_time(&mut log));
            assert!(!store.evict(&key, 1).await.unwrap());
            quickest[2] = quickest[2].min(script_time(&mut log));
            if round == 19 {
                assert!(store.evict(&key, token).await.unwrap());
                quickest[3] = script_time(&mut log);
            }
        }
        server.cli(&["config", "set", "slowlog-log-slower-than", "-1"]);
        times.push(quickest);
    }
    for (name, (few, many)) in
        ["another limit", "ask", "evict nobody", "evict"].iter().zip(times[0].iter().zip(times[1]))
    {
        assert!(many < 20 * few, "{name}: {few} us with 100 waiters, {many} us with 20,000");
    }
}

/// A semaphore in use whose limit was lowered afterwards: `holder` has all units, and the claims in `queues` wait.
async fn lowered(store: &Redis, limits: (u64, u64), queues: &[(u64, usize)]) -> Claim {
    let key = Key::new(format!("lowered/{queues:?}")).unwrap();
    let claim = |units| {
        let mut claim = Claim::new(key.clone(), limits.0, Units::Exactly(units)).unwrap();
        (claim.lease, claim.patience) = (Some(20 * SOON), 20 * SOON);
        claim
    };
    let holder = claim(limits.0);
    assert!(matches!(store.claim(&holder).await.unwrap(), Answer::Granted(_)));
    for (units, count) in queues {
        for from in (0..*count).step_by(100) {
            let claims: Vec<_> = (from..*count.min(&(from + 100))).map(|_| claim(*units)).collect();
            try_join_all(claims.iter().map(|claim| store.claim(claim))).await.unwrap();
        }
    }
    assert_eq!(store.amend(&claim(1), &Change::Limit(limits.1)).await.unwrap(), Answer::Done);
    holder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_walks_through_the_whole_queue_of_a_lowered_semaphore() {
    let server = Server::start();
    server.cli(&["config", "set", "slowlog-max-len", "10000"]);
    let mut log = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let store = Redis::from_url(&format!("{}?timeout=20s", server.url())).unwrap();
    let mut times = Vec::new();
    for waiters in [100, 20_000] {
        let holder = lowered(&store, (3, 1), &[(1, waiters)]).await;
        let mut other = Claim::new(holder.key.clone(), 3, Units::Exactly(1)).unwrap();
        other.if_busy = IfBusy::Leave;
        // The server learns the script.
        store.release(&other, None).await.unwrap();
        server.cli(&["config", "set", "slowlog-log-slower-than", "0"]);
        let mut quickest = [u64::MAX; 2];
        for _ in 0..20 {
            script_time(&mut log);
            assert_eq!(store.claim(&other).await.unwrap(), Answer::Busy);
            quickest[0] = quickest[0].min(script_time(&mut log));
        }
        store.release(&holder, None).await.unwrap();
        quickest[1] = script_time(&mut log);
        server.cli(&["config", "set", "slowlog-log-slower-than", "-1"]);
        times.push(quickest);
    }
    for (name, (few, many)) in ["claim", "release"].iter().zip(times[0].iter().zip(times[1])) {
        assert!(many < 20 * few, "{name}: {few} us with 100 waiters, {many} us with 20,000");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_want_more_than_a_lowered_limit_are_passed_over_once_per_request() {
    const TOO_LARGE: usize = 1_000;
    const SERVED: usize = 50;
    let server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    let holder = lowered(&store, (200, 50), &[(100, TOO_LARGE), (1, SERVED)]).await;
    reset(&server);
    store.release(&holder, None).await.unwrap();
    let seen = store.inspect(&holder.key).await.unwrap().unwrap();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (SERVED, TOO_LARGE));
    // Once past all of them, 64 members at a time, and once more for each claim that is served.
    let fetched = count(&server, "zrange");
    assert!(fetched < 2 * TOO_LARGE as u64 / 64 + 3 * SERVED as u64, "{fetched} times");
}
