//! Users without a right to the locks try to read the secret, and to change locks, numbers and messages.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Key, Store, Units};
use leasehold_redis::Redis;
use leasehold_servers::redis::Redis as Server;
use redis::{RedisResult, Value};

use super::{guarded, recipe, url};

const SECRET: &str = "leasehold.secret";
/// What a lock client's keys are called.
const KEYS: [&str; 3] = ["leasehold{:orders/42}", "leasehold.fence", SECRET];

/// Commands that take no key: they answer without any right to one.
const KEYLESS: [&str; 5] = ["keys", "scan", "randomkey", "dbsize", "lolwut"];

/// What a monitor tries. LOCK and SECRET stand for those keys.
const READS: &str = "GET SECRET; MGET LOCK SECRET; GETRANGE SECRET 0 -1; SUBSTR SECRET 0 -1; STRLEN SECRET; \
    DUMP SECRET; EXISTS SECRET; TYPE SECRET; OBJECT ENCODING SECRET; OBJECT IDLETIME SECRET; MEMORY USAGE SECRET; \
    LCS LOCK SECRET; SORT_RO LOCK BY nosort GET leasehold.secre*; SORT_RO LOCK BY leasehold.secre*; \
    SORT LOCK BY nosort GET leasehold.secre*; EVAL return(redis.call('GET','leasehold.secret')) 0; \
    EVAL_RO return(redis.call('GET','leasehold.secret')) 0; EVAL_RO return(redis.call('GET',KEYS[1])) 1 SECRET; \
    FCALL_RO read 1 SECRET; MONITOR; SLOWLOG GET; CLIENT LIST; CLIENT TRACKING on; CONFIG GET *; ACL LIST; INFO; \
    DEBUG OBJECT SECRET; DEBUG RELOAD; SUBSCRIBE leasehold.inbox:1; PSUBSCRIBE *; PSUBSCRIBE __key*__:*";

/// What nobody but a lock client may do.
const WRITES: &str = "SET LOCK x; DEL LOCK; UNLINK LOCK; ZADD LOCK 1 x; ZREM LOCK x; PEXPIRE LOCK 1; PERSIST LOCK; \
    RENAME LOCK app:1; COPY SECRET app:1; MOVE LOCK 1; SET leasehold.fence 1; DEL leasehold.fence; \
    SETRANGE leasehold.fence 0 1; SET SECRET x; DEL SECRET; EVAL return(redis.call('DEL',KEYS[1])) 1 LOCK; \
    EVAL return(redis.call('DEL','leasehold.fence')) 0; PUBLISH leasehold.inbox:1 x; SPUBLISH leasehold.inbox:1 x; \
    FLUSHALL; FLUSHDB; SWAPDB 0 1; RESTORE LOCK 0 x REPLACE; MIGRATE 127.0.0.1 1 SECRET 0 10; CONFIG SET maxmemory 1; \
    CLIENT KILL TYPE normal; CLIENT PAUSE 1000; ACL SETUSER app ~*; REPLICAOF NO ONE; DEBUG RELOAD; SHUTDOWN NOSAVE";

/// A user with a connection.
struct User(redis::Connection);

impl User {
    fn connect(server: &Server, name: &str) -> Self {
        Self(redis::Client::open(url(server, name)).unwrap().get_connection().unwrap())
    }

    fn run<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> RedisResult<Value> {
        let mut command = redis::Cmd::new();
        words.into_iter().for_each(|word| _ = command.arg(word));
        command.query(&mut self.0)
    }

    /// The server denies every one of these commands.
    fn is_denied(&mut self, commands: &str) {
        for command in commands.split(';').map(|command| command.trim().replace("SECRET", SECRET)) {
            let command = command.replace("LOCK", KEYS[0]);
            let error = self.run(command.split(' ')).expect_err(&command);
            let text = error.to_string();
            // Inside of a script, in Redis 7.0 and in later versions; DEBUG where nobody may use it; SORT.
            let denials = ["can't access", "ACL failure", "not allowed", "insufficient ACL permissions"];
            let is_denied = error.code() == Some("NOPERM") || denials.iter().any(|why| text.contains(why));
            assert!(is_denied, "{command}: {text}");
        }
    }
}

/// A lock with a holder and a waiter: a sorted set. Everything that is stored then, to be compared.
async fn lock_in_use(server: &Server) -> impl Fn() -> Vec<Vec<u8>> {
    let store = Redis::from_url(&url(server, "locks")).unwrap();
    let claim = || {
        let claim = Claim::new(Key::new("orders/42").unwrap(), 1, Units::Exactly(1)).unwrap();
        Claim { lease: Some(Duration::from_secs(600)), ..claim }
    };
    assert!(matches!(store.claim(&claim()).await.unwrap(), Answer::Granted(_)));
    assert!(matches!(store.claim(&claim()).await.unwrap(), Answer::Waiting(_)));
    let client = redis::Client::open(server.url()).unwrap();
    move || {
        let mut server = client.get_connection().unwrap();
        KEYS.iter().map(|key| redis::cmd("DUMP").arg(key).query(&mut server).unwrap()).collect()
    }
}

/// The monitor as the page has it, and as it has it for Redis 6.2.
fn monitors() -> [Vec<String>; 2] {
    let now: Vec<_> = recipe("monitor").into_iter().map(str::to_owned).collect();
    let before = now.iter().map(|word| word.replace("%R~", "~")).collect();
    assert_ne!(now, before, "the page has the same recipe for both");
    [now, before]
}

/// Lets each form of the monitor act on a server with a lock.
async fn each_monitor(act: impl Fn(&Server, &mut User)) {
    for monitor in monitors() {
        let server = guarded();
        let stored = lock_in_use(&server).await;
        let before = stored();
        server.cli(&["acl", "deluser", "monitor"]);
        let words: Vec<_> = monitor.iter().map(String::as_str).collect();
        assert_eq!(server.cli(&words), "OK", "{words:?}");
        act(&server, &mut User::connect(&server, "monitor"));
        assert!(stored() == before, "{words:?} changed something");
    }
}

#[tokio::test]
async fn a_reader_cannot_read_the_secret_or_write_a_lock() {
    each_monitor(|_, monitor| {
        monitor.run(["ZRANGE", KEYS[0], "0", "-1"]).expect("it may read the lock");
        monitor.is_denied(READS);
        monitor.is_denied(WRITES);
    })
    .await;
}

#[tokio::test]
async fn no_read_command_reveals_the_secret_to_a_reader() {
    each_monitor(|server, monitor| {
        let secret = server.cli(&["get", SECRET]);
        let commands = server.cli(&["acl", "cat", "read"]);
        assert!(commands.lines().count() > 50, "{commands}");
        for command in commands.lines() {
            let name: Vec<_> = command.split('|').collect();
            let attempts: [&[&str]; 9] = [
                &[SECRET],
                &[SECRET, "0"],
                &[SECRET, "0", "-1"],
                &[SECRET, "0", "-1", "0"],
                &[SECRET, SECRET],
                &[KEYS[0], SECRET],
                &["2", KEYS[0], SECRET],
                &["STREAMS", SECRET, "0"],
                &[KEYS[0], "BY", "nosort", "GET", "leasehold.secre*"],
            ];
            for words in attempts {
                let answer = monitor.run(name.iter().chain(words).copied());
                let text = format!("{answer:?}");
                assert!(!text.contains(&secret[..8]), "{command} {words:?}: {text}");
                let has_key = words[0] == SECRET && !KEYLESS.contains(&command);
                assert!(!has_key || answer.is_err(), "{command} {words:?}: {text}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn another_program_on_the_server_cannot_read_or_change_locks() {
    let server = guarded();
    let stored = lock_in_use(&server).await;
    let before = stored();
    let mut app = User::connect(&server, "app");
    app.run(["SET", "app:1", "x"]).expect("it may write its own keys");
    let script = "return redis.call('GET', KEYS[1])";
    app.run(["EVAL", script, "1", "app:1"]).expect("it may run scripts on its own keys");
    app.is_denied(&READS.replace("CLIENT TRACKING on; ", ""));
    app.is_denied(WRITES);
    app.is_denied("GET LOCK; ZRANGE LOCK 0 -1; GET leasehold.fence");
    assert!(stored() == before, "another program changed something");
}
