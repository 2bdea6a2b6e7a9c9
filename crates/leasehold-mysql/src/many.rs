//! Claims of many locks that nobody uses, and releases of many that nobody else uses, with one commit.
//!
//! Two round trips. The first takes the rows and says which are ours: a lock's row is ours if it was made here, or if it
//! was found as [`swift`](crate::swift) wants it. The second writes exactly those. Nobody is waited for, so that one
//! lock costs the others nothing, and no two of these calls can wait for each other.

use std::collections::HashSet;

use leasehold_core::Result;
use mysql_async::Row;
use tokio::time::{Instant, timeout_at};

use crate::crowd::{Said, What};
use crate::fault::Stop;
use crate::link::{Link, late};
use crate::rows::{CLAIM, get, strange};
use crate::sketch::Sketch;
use crate::sql::{NOW, NUMBERS, bytes, list, with};
use crate::swift::{BOTH, lonely};

/// Does what can be done like this, and says to each what became of it.
///
/// # Errors
/// `Indeterminate` when nobody knows what happened. Everything else means that nothing did.
pub(crate) async fn perform(link: &Link, asked: &[&What], until: Instant) -> Result<Vec<Said>> {
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt(link, asked, until).await {
            Ok(said) => return Ok(said),
            // The server found a deadlock, with another of these perhaps, and this one was undone.
            Err(Stop::Again(_)) if tries < TRIES => {}
            Err(stop) => return Err(stop.into_error()),
        }
    }
}

/// How often it is tried when others were in the way. Then each goes alone, and waits for its lock only.
const TRIES: u32 = 3;

async fn attempt(link: &Link, asked: &[&What], until: Instant) -> Result<Vec<Said>, Stop> {
    let prefix = &link.target.prefix;
    let mut wire = link.connected(until).await?;
    let taken = timeout_at(until, wire.say(&with(prefix, &question(asked)))).await.map_err(|_| late())?;
    let taken = match taken {
        Ok(rows) => Taken::read(&rows)?,
        Err(cause) => {
            wire.undo(until).await;
            return Err(Stop::before(cause));
        }
    };
    let (words, said) = changes(asked, taken);
    let done = timeout_at(until, wire.say(&with(prefix, &words))).await;
    match done {
        Ok(Ok(_)) => {
            wire.give_back();
            Ok(said)
        }
        Ok(Err(cause)) => {
            let stop = Stop::after(cause);
            if !matches!(stop, Stop::Unknown(_)) {
                // Who asks alone finds the rows free.
                wire.undo(until).await;
            }
            Err(stop)
        }
        Err(_) => Err(Stop::Unknown("no answer in time".to_owned())),
    }
}

fn claims<'a>(asked: &'a [&What]) -> impl Iterator<Item = &'a Sketch> + Clone {
    asked.iter().filter_map(|what| match what {
        What::Claim(sketch) => Some(&**sketch),
        What::Release(..) => None,
    })
}

/// What to ask. Every row says in its first column what it is.
fn question(asked: &[&What]) -> String {
    let mut sql = "START TRANSACTION".to_owned();
    let (names, ids): (Vec<_>, Vec<_>) = asked
        .iter()
        .filter_map(|what| match what {
            What::Release(key, id) => Some((bytes(key.as_str().as_bytes()), bytes(id.as_bytes()))),
            What::Claim(_) => None,
        })
        .unzip();
    if !names.is_empty() {
        sql += &format!("; SELECT 'c', c.id {} FOR UPDATE SKIP LOCKED", lonely(&list(names), &list(ids)));
    }
    let claims = claims(asked);
    let many = claims.clone().count();
    if many > 0 {
        // The time, the refusals and the numbers are read when the rows are ours. What others have their hands on is an error.
        sql += &format!(
            "; SET STATEMENT innodb_lock_wait_timeout = 0 FOR INSERT IGNORE INTO leasehold_keys VALUES {} RETURNING 'k', name; \
             SELECT 'r', id FROM leasehold_refusals WHERE id IN ({})",
            list(claims.clone().map(|sketch| format!("({}, {})", sketch.name(), sketch.head()))),
            list(claims.map(|sketch| bytes(sketch.id().as_bytes()))),
        );
        let draw = format!(
            "; SELECT 't', {NOW}, NEXT VALUE FOR leasehold_numbers FROM leasehold_store WHERE format = 1"
        );
        sql += &draw.repeat(many.div_ceil(NUMBERS as usize));
    }
    sql
}

/// What is ours.
#[derive(Debug, Default)]
struct Taken {
    /// The ids of claims that can be removed with their locks.
    lonely: HashSet<Vec<u8>>,
    /// The names of locks that were made.
    made: HashSet<Vec<u8>>,
    /// The ids of claims that were given up.
    refused: HashSet<Vec<u8>>,
    now: u64,
    numbers: Vec<u64>,
}

impl Taken {
    fn read(rows: &[Row]) -> Result<Self> {
        let mut taken = Self::default();
        for row in rows {
            match get::<String>(row, 0)?.as_str() {
                "c" => drop(taken.lonely.insert(get(row, 1)?)),
                "k" => drop(taken.made.insert(get(row, 1)?)),
                "r" => drop(taken.refused.insert(get(row, 1)?)),
                "t" => {
                    taken.now = get::<i64>(row, 1)?.cast_unsigned();
                    let first = get::<i64>(row, 2)?.cast_unsigned();
                    taken.numbers.extend(first..first + NUMBERS);
                }
                _ => return Err(strange("a row")),
            }
        }
        Ok(taken)
    }
}

/// The statements that write what is ours, and commit; and what becomes of each.
fn changes(asked: &[&What], mut taken: Taken) -> (String, Vec<Said>) {
    let (mut removed, mut unwanted, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let mut numbers = taken.numbers.into_iter();
    let said = asked.iter().map(|what| match what {
        What::Release(key, id) if taken.lonely.remove(&id.as_bytes()[..]) => {
            removed.push(bytes(key.as_str().as_bytes()));
            Said::Released
        }
        What::Claim(sketch) if taken.made.remove(sketch.key.as_str().as_bytes()) => {
            let is_refused = taken.refused.contains(&sketch.id().as_bytes()[..]);
            match numbers.next().filter(|number| *number > sketch.above && !is_refused) {
                Some(number) => {
                    rows.push(format!("({}, {})", sketch.name(), sketch.row_at(taken.now, number)));
                    Said::Granted(sketch.granted(number))
                }
                None => {
                    unwanted.push(sketch.name());
                    Said::NotSo
                }
            }
        }
        _ => Said::NotSo,
    });
    let said = said.collect();
    let mut sql = String::new();
    if !removed.is_empty() {
        // Their only claims go with them.
        sql += &format!("DELETE k, c {BOTH} WHERE k.name IN ({}); ", list(removed));
    }
    if !unwanted.is_empty() {
        let unwanted = list(unwanted);
        sql +=
            &format!("DELETE k FROM leasehold_keys k FORCE INDEX (PRIMARY) WHERE k.name IN ({unwanted}); ");
    }
    if !rows.is_empty() {
        sql += &format!("INSERT INTO leasehold_claims (name, {CLAIM}, turn) VALUES {}; ", list(rows));
    }
    (sql + "COMMIT", said)
}
