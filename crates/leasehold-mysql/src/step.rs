//! One operation on one lock: take its row, read the rest, let the rule decide, write, commit.
//!
//! Two round trips: what is read does not depend on anything, and what is written follows from it. The row is taken by a
//! locking read, which sees what was committed last whatever the isolation; and everything else is read after it.

use std::collections::BTreeMap;

use leasehold_core::rule::{Head, Outcome, Row as Stored};
use leasehold_core::{Book, ClaimId, Fence, Inbox, Key, OpenBook, Promotion, Result};
use tokio::time::{Instant, timeout_at};

use crate::dialect::Dialect;
use crate::fault::{Stop, is_missing};
use crate::link::{Link, Wire, late};
use crate::rows::{self, CLAIM, HEAD, get, strange};
use crate::sql::{BOUND, NOW, NUMBERS, bytes, list, with};

/// How many who wait are read at first: of a long queue only the front matters, nearly always.
const FRONT: usize = 100;

/// How much of a lock is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Front,
    All,
}

/// What an operation is about, besides its lock.
pub(crate) struct About {
    pub(crate) key: Key,
    /// The claims that it names.
    pub(crate) ids: Vec<ClaimId>,
    /// Whether it may bring something to a lock that nobody uses.
    pub(crate) makes: bool,
    pub(crate) if_kept: IfKept,
}

/// What to do about a row that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfKept {
    Wait,
    /// After a few tries: most are locked for a moment only.
    Leave,
}

/// How often a row is tried that nobody waits for.
const TRIES: u32 = 3;

/// What became of an operation, and whom to tell.
pub(crate) struct Done<T> {
    pub(crate) answer: Result<T>,
    pub(crate) promoted: Vec<Promotion>,
    pub(crate) ended: Vec<Inbox>,
    /// Whether there are others on the lock.
    pub(crate) crowded: bool,
}

/// What was read.
struct Seen {
    book: Book,
    fence: Fence,
    now: u64,
    /// The first number that is ours.
    base: u64,
    /// Whether the lock's row is there.
    has_row: bool,
    /// How many who wait were not read.
    unseen: u64,
}

/// Performs an operation until it is done, or time is over.
pub(crate) async fn perform<T: Send>(
    link: &Link,
    about: &About,
    until: Instant,
    operation: impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>> + Send + Sync,
) -> Result<Done<T>> {
    let (mut sight, mut tries) = (Sight::Front, 0);
    loop {
        tries += 1;
        let mut wire = link.connected_for(&about.key, until).await?;
        let stop = match attempt(link, &mut wire, about, sight, until, &operation).await {
            Ok(done) => {
                wire.give_back();
                return Ok(done);
            }
            Err(stop) => stop,
        };
        match stop {
            // The connection is dropped, and the transaction with it.
            Stop::Blind if sight == Sight::Front => sight = Sight::All,
            Stop::Again(_) => {
                // The server has answered, so the connection is in order. With it goes the turn: others may have theirs
                // meanwhile.
                wire.undo(until).await;
                if Instant::now() >= until || (about.if_kept == IfKept::Leave && tries >= TRIES) {
                    return Err(stop.into_error().on(&about.key));
                }
                tokio::time::sleep(std::time::Duration::from_millis(fastrand::u64(1..10))).await;
            }
            stop => return Err(stop.into_error().on(&about.key)),
        }
    }
}

async fn attempt<T: Send>(
    link: &Link,
    wire: &mut Wire<'_>,
    about: &About,
    sight: Sight,
    until: Instant,
    operation: impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>> + Send + Sync,
) -> Result<Done<T>, Stop> {
    let (prefix, dialect) = (&link.target.prefix, link.dialect());
    let heard = timeout_at(until, wire.say(&with(prefix, &question(about, sight, dialect)))).await;
    let heard = heard.map_err(|_| Stop::Failed(late()))?;
    let heard = heard.map_err(|cause| {
        if is_missing(&cause) {
            link.forget();
        }
        Stop::before(cause)
    })?;
    let mut seen = read(&heard)?;
    let (before, refused) = (contents(&seen.book), refusals(&seen.fence));
    // The source follows the numbers that claims ask for and cannot be set back, so it must not go far ahead of the clock.
    let ceiling = seen.now.saturating_mul(1000).saturating_add(BOUND);
    let mut book = OpenBook::new(&about.key, &mut seen.book, &mut seen.fence, 0).up_to(ceiling);
    let outcome = operation(&mut book, seen.now);
    let (answer, promoted, ended) = match outcome {
        Ok(Outcome { answer, promoted, ended }) => (Ok(answer), promoted, ended),
        // An operation that fails changes nothing.
        Err(error) => {
            return match timeout_at(until, wire.say("ROLLBACK")).await {
                Ok(Ok(_)) => {
                    Ok(Done { answer: Err(error), promoted: Vec::new(), ended: Vec::new(), crowded: true })
                }
                _ => Err(Stop::Failed(error)),
            };
        }
    };
    let effective = seen.book.head().map_or(0, |head| head.effective);
    let is_in_line = |row: &&Stored| row.waits() && !row.is_passed_over(effective, seen.now);
    let waiting = seen.book.rows().filter(is_in_line).count() as u64;
    if seen.unseen > 0 && waiting < FRONT as u64 / 2 {
        // The walk may have stopped because it saw no more.
        return Err(Stop::Blind);
    }
    let words = changes(about, &seen, &before, &refused, dialect);
    let said = timeout_at(until, wire.say(&with(prefix, &words))).await;
    let said = said.map_err(|_| Stop::Unknown("no answer in time".to_owned()))?;
    said.map_err(Stop::after)?;
    let crowded = seen.book.head().is_some_and(|head| head.claims > 1);
    Ok(Done { answer, promoted, ended, crowded })
}

/// What to ask: everything that the rule could want to know. Every row says in its first column what it is.
fn question(about: &About, sight: Sight, dialect: Dialect) -> String {
    let name = bytes(about.key.as_str().as_bytes());
    let ids = list(about.ids.iter().map(|id| bytes(id.as_bytes())));
    let mut sql = "START TRANSACTION; ".to_owned();
    if about.makes {
        sql += &format!(
            "INSERT INTO leasehold_keys VALUES ({name}, 0, 0, 0, 0, 0, 0, 0, 0) ON DUPLICATE KEY UPDATE held = held; "
        );
    }
    sql += &format!(
        "SELECT 'k', {HEAD} FROM leasehold_keys WHERE name = {name} FOR UPDATE{}; ",
        if about.if_kept == IfKept::Leave { " NOWAIT" } else { "" }
    );
    if about.if_kept == IfKept::Leave && !ids.is_empty() {
        // A session that keeps only the claim's row would block the write below.
        sql += &format!(
            "SELECT 'l' FROM leasehold_claims WHERE name = {name} AND id IN ({ids}) FOR UPDATE NOWAIT; "
        );
    }
    let of_name = format!("SELECT 'c', {CLAIM} FROM leasehold_claims WHERE name = {name}");
    sql += &match sight {
        Sight::All => format!("{of_name}; "),
        Sight::Front => format!(
            "({of_name} AND (held > 0{})) UNION ALL ({of_name} AND held = 0{} AND turn IS NOT NULL ORDER BY turn \
             LIMIT {FRONT}); ",
            if ids.is_empty() { String::new() } else { format!(" OR id IN ({ids})") },
            if ids.is_empty() { String::new() } else { format!(" AND id NOT IN ({ids})") },
        ),
    };
    if !ids.is_empty() {
        sql += &format!("SELECT 'r', id, until FROM leasehold_refusals WHERE id IN ({ids}); ");
    }
    sql + &dialect.draw(&format!("'t', {NOW}, (SELECT born FROM leasehold_store),"))
}

fn read(heard: &[mysql_async::Row]) -> Result<Seen> {
    let (mut head, mut claims, mut marks, mut times, mut has_row) =
        (None, Vec::new(), Vec::new(), None, false);
    for row in heard {
        match get::<String>(row, 0)?.as_str() {
            "k" => (head, has_row) = (rows::head(row, 1)?, true),
            "c" => claims.push(rows::claim(row, 1)?),
            "r" => marks.push((get::<Vec<u8>>(row, 1)?, get::<i64>(row, 2)?)),
            // Only locked.
            "l" => {}
            _ => times = Some((get::<i64>(row, 1)?, get::<i64>(row, 2)?, get::<i64>(row, 3)?)),
        }
    }
    let (now, born, base) = times.ok_or_else(|| strange("no time"))?;
    let [now, born, base] = [now, born, base].map(i64::cast_unsigned);
    let mut fence = Fence::above(base - 1).born(born);
    for (id, until) in marks {
        let id = id.try_into().map_err(|_| strange("an id"))?;
        fence.refuse(ClaimId::from_bytes(id), until.cast_unsigned());
    }
    let waiting = claims.iter().filter(|row: &&Stored| row.waits()).count() as u64;
    let unseen = head.as_ref().map_or(0, |head: &Head| head.waiting.saturating_sub(waiting));
    Ok(Seen { book: Book::new(head, claims), fence, now, base, has_row, unseen })
}

type Contents = (Option<Head>, BTreeMap<ClaimId, Stored>);

fn contents(book: &Book) -> Contents {
    (book.head().cloned(), book.rows().map(|row| (row.id, row.clone())).collect())
}

fn refusals(fence: &Fence) -> BTreeMap<ClaimId, u64> {
    fence.refused().collect()
}

/// The statements that make the database look like the book, and commit.
fn changes(
    about: &About,
    seen: &Seen,
    before: &Contents,
    refused: &BTreeMap<ClaimId, u64>,
    dialect: Dialect,
) -> String {
    let name = bytes(about.key.as_str().as_bytes());
    let mut sql = String::new();
    let (head, now) = contents(&seen.book);
    let gone = before.1.keys().filter(|id| !now.contains_key(*id));
    let gone = list(gone.map(|id| bytes(id.as_bytes())));
    if !gone.is_empty() {
        sql += &format!("DELETE FROM leasehold_claims WHERE name = {name} AND id IN ({gone}); ");
    }
    let changed = now.values().filter(|row| before.1.get(&row.id) != Some(*row));
    let changed =
        list(changed.map(|row| format!("({name}, {})", rows::values(row, rows::number, rows::number))));
    if !changed.is_empty() {
        sql += &format!("REPLACE INTO leasehold_claims (name, {CLAIM}, turn) VALUES {changed}; ");
    }
    match &head {
        None if seen.has_row => sql += &format!("DELETE FROM leasehold_keys WHERE name = {name}; "),
        Some(head) if before.0.as_ref() != Some(head) => {
            sql += &format!("UPDATE leasehold_keys SET {} WHERE name = {name}; ", rows::assignments(head));
        }
        _ => {}
    }
    for (id, until) in seen.fence.refused().filter(|(id, until)| refused.get(id) != Some(until)) {
        let (id, until) = (bytes(id.as_bytes()), rows::number(until));
        sql += &format!("REPLACE INTO leasehold_refusals VALUES ({id}, {until}); ");
    }
    if seen.fence.last() >= seen.base + NUMBERS {
        sql += &format!("{}; ", dialect.leap(seen.fence.last()));
    }
    sql + "COMMIT"
}
