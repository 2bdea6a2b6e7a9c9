//! A real server whose functions are told what time it is, and write down whom they tell.

use leasehold_core::{Book, ClaimId, Fence, Inbox, Key, Promotion};
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row};

use crate::ask::{self, Call};
use crate::reply;
use crate::sql::Statements;

/// A year after any day on which this may run.
pub(super) const EPOCH: u64 = 2_500_000_000_000;

const BY_HAND: &str = "
CREATE OR REPLACE FUNCTION leasehold.clock_1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT current_setting('test.now')::bigint
$$;
CREATE TABLE public.told (place bigserial, inbox bigint, seat bigint, token bigint, units bigint, name text);
CREATE OR REPLACE FUNCTION leasehold.tell_1(p_inbox bigint, p_seat bigint, p_token bigint, p_units bigint, p_name text)
RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO public.told (inbox, seat, token, units, name) VALUES (p_inbox, p_seat, p_token, p_units, p_name)
$$;";

/// What a call left behind, and whom it told.
pub(super) struct After {
    pub(super) book: Book,
    pub(super) fence: Fence,
    pub(super) promoted: Vec<Promotion>,
    pub(super) ended: Vec<Inbox>,
}

pub(super) struct Server {
    pub(super) key: Key,
    client: Client,
    statements: Statements,
    runtime: Runtime,
    _process: leasehold_servers::postgres::Postgres,
}

impl Server {
    pub(super) fn start() -> Self {
        let process = leasehold_servers::postgres::Postgres::start();
        let runtime = Runtime::new().unwrap();
        let statements = Statements::new("leasehold").unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&process.url(), NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&statements.init).await.unwrap();
            client.batch_execute(BY_HAND).await.unwrap();
            client
        });
        Self { key: Key::new("vector").unwrap(), client, statements, runtime, _process: process }
    }

    /// Makes a call as if it were this time, and looks at what came of it.
    pub(super) fn call(&mut self, call: &Call, now: u64) -> (Vec<Row>, After) {
        let text = |call: &Call| self.statements.text(call.verb).to_owned();
        let look = ask::look(vec![self.key.as_str().to_owned()]);
        let (asked, looked) = (text(call), text(&look));
        let (rows, stored, marks, last, told) = self.runtime.block_on(async {
            let client = &self.client;
            let clock = format!("SET test.now = {now}; DELETE FROM public.told");
            // Sent together, carried out one after the other.
            let (set, rows, stored, marks, last, told) = tokio::join!(
                client.batch_execute(&clock),
                query(client, &asked, call),
                query(client, &looked, &look),
                client.query_typed("SELECT id, until FROM leasehold.refusals", &[]),
                client.query_typed_one("SELECT last_value FROM leasehold.numbers", &[]),
                client.query_typed("SELECT inbox, seat, token, units FROM public.told ORDER BY place", &[]),
            );
            set.unwrap();
            (rows, stored, marks.unwrap(), last.unwrap(), told.unwrap())
        });
        let book = reply::books(&stored).unwrap().pop().map_or_else(Book::default, |(_, _, book)| book);
        let mut fence = Fence::above(last.get::<_, i64>(0).cast_unsigned());
        for mark in marks {
            let id = mark.get::<_, Vec<u8>>(0).try_into().unwrap();
            fence.refuse(ClaimId::from_bytes(id), mark.get::<_, i64>(1).cast_unsigned());
        }
        fence.prune(now);
        let (mut promoted, mut ended) = (Vec::new(), Vec::new());
        for row in told {
            let number = |at| row.get::<_, i64>(at).cast_unsigned();
            let (inbox, seat) = (Inbox(number(0)), number(1));
            if seat == 0 {
                ended.push(inbox);
            } else {
                promoted.push(Promotion {
                    key: self.key.clone(),
                    inbox,
                    seat,
                    token: number(2),
                    units: number(3),
                });
            }
        }
        ended.sort_unstable();
        (rows, After { book, fence, promoted, ended })
    }

    /// Empties the store and puts this in.
    pub(super) fn load(&mut self, book: &Book, fence: &Fence, born: u64) {
        let never = |at: u64| at.min(1 << 62).cast_signed();
        let name = self.key.as_str();
        self.runtime.block_on(async {
            let client = &self.client;
            let clear = format!(
                "TRUNCATE leasehold.keys, leasehold.claims, leasehold.refusals; UPDATE leasehold.store SET born = {born};
                 SELECT setval('leasehold.numbers', {}, {})",
                fence.last().max(1),
                fence.last() > 0,
            );
            client.batch_execute(&clear).await.unwrap();
            for (id, until) in fence.refused() {
                let values: [&(dyn ToSql + Sync); 2] = [&id.as_bytes().to_vec(), &never(until)];
                client.execute("INSERT INTO leasehold.refusals VALUES ($1, $2)", &values).await.unwrap();
            }
            if let Some(head) = book.head() {
                let numbers = [head.limit, head.effective, head.held, head.claims, head.waiting, head.quiet_until];
                let n: Vec<i64> = numbers.into_iter().chain([head.last, head.last_until]).map(never).collect();
                let sql = "INSERT INTO leasehold.keys VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
                let values: [&(dyn ToSql + Sync); 9] =
                    [&name, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]];
                client.execute(sql, &values).await.unwrap();
            }
            for row in book.rows() {
                let numbers = [row.seat, row.token, row.held, row.wanted, row.least, row.since];
                let n: Vec<i64> = numbers.into_iter().chain([row.patience, row.lock_delay]).map(never).collect();
                let given: Vec<i64> = row.given.iter().map(|op| op.cast_signed()).collect();
                let sql = "INSERT INTO leasehold.claims VALUES
                    ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";
                let (lease, expires, count) = (row.lease.map(never), row.expires.map(never), row.count.map(never));
                let (id, inbox, value) = (row.id.as_bytes().to_vec(), row.inbox.0.cast_signed(), row.value.to_vec());
                let values: [&(dyn ToSql + Sync); 18] = [
                    &name, &id, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &lease, &n[6], &expires, &n[7], &inbox,
                    &&*row.label, &value, &count, &given, &row.asked,
                ];
                client.execute(sql, &values).await.unwrap();
            }
        });
    }
}

async fn query(client: &Client, text: &str, call: &Call) -> Vec<Row> {
    let values = call.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
    let typed: Vec<_> = values.zip(call.verb.types().iter().cloned()).collect();
    client.query_typed(text, &typed).await.unwrap_or_else(|e| panic!("{:?}: {e:?}", call.verb))
}
