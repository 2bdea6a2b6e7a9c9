//! A lock as `show`, `watch` and `list` print it.

use std::fmt;
use std::time::Duration;

use leasehold::{Finished, Holder, Key, Latch, Snapshot, WHOLE, Waiter};
use serde::Serialize;

use super::{Plain, Rough};

/// A resource, in the shape that `--json` promises.
#[derive(Debug, Serialize)]
pub(crate) struct Resource {
    key: String,
    /// `null` when the key is free: then it has none.
    kind: Option<Kind>,
    /// Likewise.
    limit: Option<u64>,
    holders: Vec<HolderShape>,
    finished: Vec<FinishedShape>,
    waiters: Vec<WaiterShape>,
}

/// What the key is used as. An election and a job are locks to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Lock,
    Semaphore,
    Latch,
}

impl Kind {
    fn of(snapshot: &Snapshot) -> Self {
        match snapshot.limit {
            1 | WHOLE => Self::Lock,
            Latch::LIMIT => Self::Latch,
            _ => Self::Semaphore,
        }
    }
}

#[derive(Debug, Serialize)]
struct HolderShape {
    label: String,
    units: u64,
    token: u64,
    held_for_ms: u64,
    /// `null` for state that no process owns.
    lease_remaining_ms: Option<u64>,
    /// What a leader publishes; `null` for everybody else.
    value: Option<String>,
    /// What is left to count down; `null` for all but latches.
    count: Option<u64>,
}

/// A job that has finished and is not due yet.
#[derive(Debug, Serialize)]
struct FinishedShape {
    label: String,
    units: u64,
    token: u64,
    started_ms_ago: u64,
    due_in_ms: u64,
}

#[derive(Debug, Serialize)]
struct WaiterShape {
    label: String,
    units: u64,
    waiting_for_ms: u64,
    lease_remaining_ms: Option<u64>,
}

impl Resource {
    /// What `show` prints of a key; `None` when it is free.
    pub(crate) fn new(key: &Key, snapshot: Option<Snapshot>) -> Self {
        let name = key.as_str().to_owned();
        let (holders, finished, waiters) = (vec![], vec![], vec![]);
        let free = || Self { key: name, kind: None, limit: None, holders, finished, waiters };
        snapshot.map_or_else(free, Self::from)
    }

    fn units(&self, units: u64) -> String {
        match self.limit {
            Some(WHOLE) if units == WHOLE => "exclusive, ".to_owned(),
            Some(WHOLE) if units == 1 => "shared, ".to_owned(),
            Some(WHOLE) => "upgradable, ".to_owned(),
            Some(1) => String::new(),
            _ => format!("{units} {}, ", if units == 1 { "permit" } else { "permits" }),
        }
    }
}

impl From<Snapshot> for Resource {
    fn from(mut snapshot: Snapshot) -> Self {
        let kind = Kind::of(&snapshot);
        show_as_one_of_one(&mut snapshot, kind);
        Self {
            key: snapshot.key.as_str().to_owned(),
            kind: Some(kind),
            limit: Some(snapshot.limit),
            holders: snapshot.holders.into_iter().map(HolderShape::from).collect(),
            finished: snapshot.finished.into_iter().map(FinishedShape::from).collect(),
            waiters: snapshot.waiters.into_iter().map(WaiterShape::from).collect(),
        }
    }
}

/// A lock that everybody wants as a whole is one of one to people: how finely it could be shared means nothing.
/// Of a latch it never does.
fn show_as_one_of_one(snapshot: &mut Snapshot, kind: Kind) {
    let holders = snapshot.holders.iter_mut().map(|holder| &mut holder.units);
    let finished = snapshot.finished.iter_mut().map(|job| &mut job.units);
    let waiters = snapshot.waiters.iter_mut().map(|waiter| &mut waiter.units);
    let mut units: Vec<_> = holders.chain(finished).chain(waiters).collect();
    if kind == Kind::Latch || snapshot.limit == WHOLE && units.iter().all(|units| **units == WHOLE) {
        units.iter_mut().for_each(|units| **units = 1);
        snapshot.limit = 1;
    }
}

impl From<Holder> for HolderShape {
    fn from(holder: Holder) -> Self {
        // A latch uses its value for itself.
        let publishes = holder.count.is_none() && !holder.value.is_empty();
        Self {
            label: holder.label,
            units: holder.units,
            token: holder.token,
            held_for_ms: millis(holder.held_for),
            lease_remaining_ms: holder.lease_left.map(millis),
            value: publishes.then(|| String::from_utf8_lossy(&holder.value).into_owned()),
            count: holder.count,
        }
    }
}

impl HolderShape {
    /// A latch is held by nobody.
    fn fmt_latch(&self, count: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {count} left, token {}, set for {}", self.token, Rough(self.held_for_ms))?;
        self.lease_remaining_ms.map_or(Ok(()), |left| write!(f, ", opens by itself in {}", Rough(left)))
    }
}

impl From<Finished> for FinishedShape {
    fn from(job: Finished) -> Self {
        Self {
            label: job.label,
            units: job.units,
            token: job.token,
            started_ms_ago: millis(job.started),
            due_in_ms: millis(job.due_in),
        }
    }
}

impl From<Waiter> for WaiterShape {
    fn from(waiter: Waiter) -> Self {
        Self {
            label: waiter.label,
            units: waiter.units,
            waiting_for_ms: millis(waiter.waiting_for),
            lease_remaining_ms: waiter.lease_left.map(millis),
        }
    }
}

/// One line for the key, one for everybody on it.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Plain(&self.key))?;
        match (self.kind, self.limit) {
            (None, _) => return f.write_str("free"),
            (Some(Kind::Latch), _) => f.write_str("latch")?,
            (Some(Kind::Lock), Some(WHOLE)) => f.write_str("read-write lock")?,
            (Some(Kind::Lock), _) => f.write_str("lock")?,
            (Some(Kind::Semaphore), limit) => write!(f, "{} permits", limit.unwrap_or_default())?,
        }
        for holder in &self.holders {
            if let Some(count) = holder.count {
                holder.fmt_latch(count, f)?;
                continue;
            }
            let units = self.units(holder.units);
            write!(f, "\n  held by {}, {units}token {}, ", Plain(&holder.label), holder.token)?;
            if let Some(value) = &holder.value {
                write!(f, "value \"{}\", ", Plain(value))?;
            }
            write!(f, "for {}, ", Rough(holder.held_for_ms))?;
            match holder.lease_remaining_ms {
                Some(left) => write!(f, "lease ends in {}", Rough(left))?,
                None => f.write_str("no lease")?,
            }
        }
        for job in &self.finished {
            let units = self.units(job.units);
            write!(f, "\n  finished by {}, {units}token {}, ", Plain(&job.label), job.token)?;
            write!(f, "started {} ago, due in {}", Rough(job.started_ms_ago), Rough(job.due_in_ms))?;
        }
        for waiter in &self.waiters {
            let units = self.units(waiter.units);
            write!(f, "\n  waiting {}, {units}for {}", Plain(&waiter.label), Rough(waiter.waiting_for_ms))?;
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(limit: u64, units: u64) -> Snapshot {
        let mut snapshot = Snapshot::free(Key::new("a\u{1b}[2J").unwrap(), limit);
        snapshot.holders.push(Holder {
            seat: 1,
            token: 7,
            units,
            label: "h\n1".to_owned(),
            held_for: Duration::from_millis(61_500),
            lease_left: Some(Duration::from_millis(900)),
            value: [].into(),
            count: None,
        });
        snapshot.waiters.push(Waiter {
            seat: 2,
            units,
            label: "w".to_owned(),
            waiting_for: Duration::from_secs(2),
            lease_left: Some(Duration::from_secs(9)),
        });
        snapshot
    }

    #[test]
    fn control_characters_are_escaped_in_text() {
        let text = Resource::from(snapshot(1, 1)).to_string();
        let expected = "a\\u{1b}[2J: lock\n  held by h\\n1, token 7, for 1m 1s, lease ends in 900ms\n  waiting w, for 2s";
        assert_eq!(text, expected);
    }

    #[test]
    fn units_are_named_after_the_kind_of_lock() {
        assert!(Resource::from(snapshot(3, 2)).to_string().contains("2 permits, token"));
        assert!(Resource::from(snapshot(WHOLE, 1)).to_string().contains("shared, token"));
        let mut mixed = snapshot(WHOLE, WHOLE);
        mixed.waiters[0].units = 1;
        assert!(Resource::from(mixed).to_string().contains("exclusive, token"));
    }

    #[test]
    fn a_lock_that_nobody_shares_is_one_of_one() {
        let shown = Resource::from(snapshot(WHOLE, WHOLE));
        assert_eq!((shown.limit, shown.holders[0].units, shown.waiters[0].units), (Some(1), 1, 1));
    }

    #[test]
    fn json_has_the_promised_shape() {
        let json = serde_json::to_value(Resource::from(snapshot(3, 2))).unwrap();
        let expected = serde_json::json!({
            "key": "a\u{1b}[2J", "kind": "semaphore", "limit": 3,
            "holders": [{"label": "h\n1", "units": 2, "token": 7, "held_for_ms": 61500, "lease_remaining_ms": 900,
                         "value": null, "count": null}],
            "finished": [],
            "waiters": [{"label": "w", "units": 2, "waiting_for_ms": 2000, "lease_remaining_ms": 9000}],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn a_finished_job_is_not_held() {
        let mut job = Snapshot::free(Key::new("nightly").unwrap(), WHOLE);
        job.finished.push(Finished {
            seat: 1,
            token: 7,
            units: WHOLE,
            label: "h".to_owned(),
            started: Duration::from_millis(61_500),
            due_in: Duration::from_secs(540),
        });
        let shown = Resource::from(job);
        let expected = "nightly: lock\n  finished by h, token 7, started 1m 1s ago, due in 9m";
        assert_eq!(shown.to_string(), expected);
        let json = serde_json::to_value(&shown).unwrap();
        let finished = serde_json::json!([
            {"label": "h", "units": 1, "token": 7, "started_ms_ago": 61500, "due_in_ms": 540_000}
        ]);
        assert_eq!((&json["holders"], &json["finished"]), (&serde_json::json!([]), &finished));
    }

    #[test]
    fn a_free_key_keeps_all_fields() {
        let json = serde_json::to_value(Resource::new(&Key::new("k").unwrap(), None)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "key": "k", "kind": null, "limit": null, "holders": [], "finished": [], "waiters": [],
            })
        );
    }

    #[test]
    fn a_latch_shows_its_count_and_nothing_of_its_inside() {
        let mut latch = snapshot(Latch::LIMIT, Latch::LIMIT);
        (latch.holders[0].count, latch.holders[0].value) = (Some(2), [255; 16].into());
        latch.waiters[0].units = 1;
        let shown = Resource::from(latch);
        assert_eq!((shown.limit, shown.holders[0].units, &shown.holders[0].value), (Some(1), 1, &None));
        let expected =
            ": latch\n  2 left, token 7, set for 1m 1s, opens by itself in 900ms\n  waiting w, for 2s";
        assert!(shown.to_string().ends_with(expected), "{shown}");
    }

    #[test]
    fn what_a_leader_publishes_is_shown_escaped() {
        let mut election = snapshot(WHOLE, WHOLE);
        election.holders[0].value = b"a\x1b:1"[..].into();
        let shown = Resource::from(election).to_string();
        assert!(shown.contains(": lock\n") && shown.contains("value \"a\\u{1b}:1\", for"), "{shown}");
    }
}
