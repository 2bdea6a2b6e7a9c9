//! A real server whose scripts are told what time it is.

use std::collections::HashMap;

use leasehold_core::{Book, ClaimId, Fence, Inbox, Key, Promotion};
use leasehold_servers::redis::Redis;
use redis::{Connection, Value};

use super::super::{CLOCK, Call, Script};
use crate::ask::Fences;
use crate::pack::Pack;
use crate::{names, reply};

/// In place of `clock.lua`. Far in the future, so that the server itself forgets nothing.
const HAND: &str = "local call = redis.call\nlocal now = tonumber(call('GET', 'clock'))\nlocal micros = now * 1000\nlocal second = string.sub(call('GET', 'clock'), 1, 10)\n";

/// What callers prove messages with.
const SECRET: &str = "0123456789abcdef0123456789abcdef";

static LOAD: Script = Script::new("load", include_str!("load.lua"));

/// Long after any day on which this may run, and half a minute before the numbers that the vectors count from: a fence
/// is never further ahead of its clock than a minute.
pub(super) const EPOCH: u64 = 4_999_999_970_000;

/// All ids that are refused, and until when.
const MARKS: &str = r"
local all = {}
for i, key in ipairs(redis.call('KEYS', 'leasehold.refused:*')) do
  all[i] = { key, redis.call('GET', key) }
end
return all";

/// What a call left behind, and whom it told.
pub(super) struct After {
    pub(super) book: Book,
    pub(super) fence: Fence,
    pub(super) promoted: Vec<Promotion>,
    pub(super) ended: Vec<Inbox>,
}

pub(super) struct Server {
    pub(super) key: Key,
    /// Requests are first asked as one of many.
    pub(super) in_company: bool,
    /// What callers believe the server is called.
    pub(super) here: String,
    connection: Connection,
    ears: Connection,
    scripts: HashMap<&'static str, String>,
    _process: Redis,
}

impl Server {
    pub(super) fn start() -> Self {
        Self::of(Redis::start())
    }

    /// A Valkey server; none where whoever runs the tests said that it may be missing.
    pub(super) fn valkey() -> Option<Self> {
        let allowed = std::env::var("LEASEHOLD_ALLOW_MISSING").unwrap_or_default();
        match leasehold_servers::redis::valkey() {
            Err(missing) if allowed.split(',').any(|name| name.trim() == "valkey") => {
                eprintln!("skipped: {missing}");
                None
            }
            _ => Some(Self::of(Redis::valkey())),
        }
    }

    fn of(process: Redis) -> Self {
        let client = redis::Client::open(process.url()).unwrap();
        let mut ears = client.get_connection().unwrap();
        ears.send_packed_command(&redis::cmd("PSUBSCRIBE").arg("leasehold.inbox:*").get_packed_command())
            .unwrap();
        ears.recv_response().unwrap();
        Self {
            key: Key::new("vector").unwrap(),
            in_company: false,
            here: replication_id(&process),
            connection: client.get_connection().unwrap(),
            ears,
            scripts: HashMap::new(),
            _process: process,
        }
    }

    /// Runs a script as if it were this time, and looks at what came of it.
    pub(super) fn call(&mut self, call: &Call, now: u64) -> (Value, After) {
        let inspect = Fences::One.inspect(std::iter::once(&self.key)).unwrap();
        let (command, inspect) = (self.command(call), self.command(&inspect));
        let mut pipe = redis::pipe();
        pipe.set("clock", now).ignore().add_command(command).add_command(inspect);
        pipe.cmd("EVAL").arg(MARKS).arg(0).get("leasehold.fence");
        pipe.publish("leasehold.inbox:end", "").ignore();
        let all: (Value, Value, Vec<(String, u64)>, String) =
            pipe.query(&mut self.connection).unwrap_or_else(|e| panic!("{}: {e}", call.script.name));
        let (reply, stored, marks, fence) = all;
        let book =
            reply::book(super::only(stored), &self.key).unwrap().map_or_else(Book::default, |(_, book)| book);
        let mut fence = Fence::above(fence[..16].parse().unwrap());
        for (mark, until) in marks {
            let id = u128::from_str_radix(&mark["leasehold.refused:".len()..][..32], 16).unwrap();
            fence.refuse(ClaimId::from_bytes(id.to_be_bytes()), until);
        }
        fence.prune(now);
        let (promoted, ended) = self.heard();
        (reply, After { book, fence, promoted, ended })
    }

    fn command(&mut self, call: &Call) -> redis::Cmd {
        let Self { connection, scripts, here, .. } = self;
        let sha1 = scripts.entry(call.script.name).or_insert_with(|| {
            let source = call.script.source().replace(CLOCK, HAND);
            assert_ne!(source, call.script.source());
            redis::cmd("SCRIPT").arg("LOAD").arg(source).query(connection).unwrap()
        });
        call.command("EVALSHA", sha1, SECRET, here)
    }

    pub(super) fn flush(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection).unwrap();
    }

    /// The fence's record; empty if there is none.
    pub(super) fn fence(&mut self) -> String {
        let text: Option<String> =
            redis::cmd("GET").arg("leasehold.fence").query(&mut self.connection).unwrap();
        text.unwrap_or_default()
    }

    pub(super) fn set_fence(&mut self, text: &str) {
        redis::cmd("SET").arg("leasehold.fence").arg(text).exec(&mut self.connection).unwrap();
    }

    /// Empties the server and puts this in.
    pub(super) fn load(&mut self, book: &Book, fence: &Fence, born: u64, now: u64) {
        self.flush();
        for (id, until) in fence.refused() {
            let mark = names::refused(&self.key, &id);
            redis::cmd("SET").arg(mark).arg(until).exec(&mut self.connection).unwrap();
        }
        let mut call = Fences::One.evict(&self.key, 0);
        (call.script, call.args) = (&LOAD, vec![Pack::new().number(fence.last()).number(born).done()]);
        if let Some(head) = book.head() {
            let never = |at: u64| at.min(1 << 53);
            let pack = Pack::new().number(head.limit).number(head.effective).number(never(head.quiet_until));
            call.args.push(pack.number(head.last).number(never(head.last_until)).done());
        }
        for row in book.rows() {
            let given: Vec<u8> = row.given.iter().flat_map(|op| op.to_be_bytes()).collect();
            let pack = Pack::new().raw(row.id.as_bytes()).maybe(row.expires).maybe(row.lease);
            let pack = pack.number(row.seat).number(row.token).number(row.held).number(row.wanted);
            let pack = pack.number(row.least).number(row.since).raw(names::address(row.inbox).as_bytes());
            let pack = pack.number(row.patience).number(row.lock_delay).bytes(row.label.as_bytes());
            call.args.push(pack.bytes(&row.value).maybe(row.count).bytes(&given).flag(row.asked).done());
        }
        self.call(&call, now);
    }

    /// What was published until the end of the call: who was promoted, and who was told to look.
    fn heard(&mut self) -> (Vec<Promotion>, Vec<Inbox>) {
        let (mut promoted, mut ended) = (Vec::new(), Vec::new());
        loop {
            let said: Vec<Vec<u8>> = redis::from_redis_value(self.ears.recv_response().unwrap()).unwrap();
            let inbox = said[2].strip_prefix(b"leasehold.inbox:").unwrap();
            if inbox == b"end" {
                return (promoted, ended);
            }
            let inbox = Inbox(u64::from_str_radix(std::str::from_utf8(inbox).unwrap(), 16).unwrap());
            match reply::heard(&said[3]).unwrap() {
                reply::Heard::Promoted(promotion) => promoted.push(promotion),
                reply::Heard::Look(key) => {
                    assert_eq!(key, self.key);
                    ended.push(inbox);
                }
            }
        }
    }
}

fn replication_id(process: &Redis) -> String {
    let said = process.cli(&["info", "replication"]);
    said.lines().find_map(|line| line.strip_prefix("master_replid:")).unwrap()[..16].to_owned()
}
