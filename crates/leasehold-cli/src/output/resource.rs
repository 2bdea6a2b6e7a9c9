//! A lock as `show`, `watch` and `list` print it.

use std::fmt;
use std::time::Duration;

use leasehold::{Finished, Holder, Key, Latch, Mode, Snapshot, WHOLE, Waiter};
use serde::Serialize;

use super::{Plain, Rough};

/// A resource, in the shape that `--json` promises.
#[derive(Debug, Serialize)]
pub(crate) struct Resource {
    key: String,
    /// `null` when the key is free: then it has none.
    kind: Option<Kind>,
    /// How many permits a semaphore has; `null` for everything else.
    limit: Option<u64>,
    holders: Vec<HolderShape>,
    finished: Vec<FinishedShape>,
    waiters: Vec<WaiterShape>,
}

/// The mode that goes without saying.
const EXCLUSIVE: &str = Mode::Exclusive.as_str();

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
            WHOLE => Self::Lock,
            Latch::LIMIT => Self::Latch,
            _ => Self::Semaphore,
        }
    }
}

#[derive(Debug, Serialize)]
struct HolderShape {
    label: String,
    /// `exclusive`, `upgradable` or `shared`; `null` for everything but locks.
    mode: Option<&'static str>,
    /// How many permits of a semaphore; `null` for everything else.
    units: Option<u64>,
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
    token: u64,
    started_ms_ago: u64,
    due_in_ms: u64,
}

#[derive(Debug, Serialize)]
struct WaiterShape {
    label: String,
    /// As in [`HolderShape::mode`].
    mode: Option<&'static str>,
    /// As in [`HolderShape::units`].
    units: Option<u64>,
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

    /// Whether a claim is not exclusive: then people want to see the mode of each.
    fn is_shared(&self) -> bool {
        let holders = self.holders.iter().map(|holder| holder.mode);
        holders
            .chain(self.waiters.iter().map(|waiter| waiter.mode))
            .any(|mode| mode.is_some_and(|mode| mode != EXCLUSIVE))
    }

    /// What a claim has or wants, with a comma after it; nothing where that goes without saying.
    fn share(&self, mode: Option<&str>, units: Option<u64>) -> String {
        match (mode, units) {
            (Some(mode), _) if self.is_shared() => format!("{mode}, "),
            (None, Some(1)) => "1 permit, ".to_owned(),
            (None, Some(units)) => format!("{units} permits, "),
            _ => String::new(),
        }
    }
}

impl From<Snapshot> for Resource {
    fn from(snapshot: Snapshot) -> Self {
        let kind = Kind::of(&snapshot);
        let is_counted = kind == Kind::Semaphore;
        let share = |units| (snapshot.mode(units).map(Mode::as_str), is_counted.then_some(units));
        Self {
            key: snapshot.key.as_str().to_owned(),
            kind: Some(kind),
            limit: is_counted.then_some(snapshot.limit),
            holders: snapshot
                .holders
                .iter()
                .map(|holder| HolderShape::new(holder, share(holder.units)))
                .collect(),
            finished: snapshot.finished.iter().map(FinishedShape::from).collect(),
            waiters: snapshot
                .waiters
                .iter()
                .map(|waiter| WaiterShape::new(waiter, share(waiter.units)))
                .collect(),
        }
    }
}

impl HolderShape {
    fn new(holder: &Holder, (mode, units): (Option<&'static str>, Option<u64>)) -> Self {
        // A latch uses its value for itself.
        let publishes = holder.count.is_none() && !holder.value.is_empty();
        Self {
            label: holder.label.clone(),
            mode,
            units,
            token: holder.token,
            held_for_ms: millis(holder.held_for),
            lease_remaining_ms: holder.lease_left.map(millis),
            value: publishes.then(|| String::from_utf8_lossy(&holder.value).into_owned()),
            count: holder.count,
        }
    }

    /// A latch is held by nobody.
    fn fmt_latch(&self, count: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {count} left, token {}, set for {}", self.token, Rough(self.held_for_ms))?;
        self.lease_remaining_ms.map_or(Ok(()), |left| write!(f, ", opens by itself in {}", Rough(left)))
    }
}

impl From<&Finished> for FinishedShape {
    fn from(job: &Finished) -> Self {
        Self {
            label: job.label.clone(),
            token: job.token,
            started_ms_ago: millis(job.started),
            due_in_ms: millis(job.due_in),
        }
    }
}

impl WaiterShape {
    fn new(waiter: &Waiter, (mode, units): (Option<&'static str>, Option<u64>)) -> Self {
        Self {
            label: waiter.label.clone(),
            mode,
            units,
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
            (Some(Kind::Lock), _) if self.is_shared() => f.write_str("read-write lock")?,
            (Some(Kind::Lock), _) => f.write_str("lock")?,
            (Some(Kind::Semaphore), Some(1)) => f.write_str("1 permit")?,
            (Some(Kind::Semaphore), limit) => write!(f, "{} permits", limit.unwrap_or_default())?,
        }
        for holder in &self.holders {
            if let Some(count) = holder.count {
                holder.fmt_latch(count, f)?;
                continue;
            }
            let share = self.share(holder.mode, holder.units);
            write!(f, "\n  held by {}, {share}token {}, ", Plain(&holder.label), holder.token)?;
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
            write!(f, "\n  finished by {}, token {}, ", Plain(&job.label), job.token)?;
            write!(f, "started {} ago, due in {}", Rough(job.started_ms_ago), Rough(job.due_in_ms))?;
        }
        for waiter in &self.waiters {
            let share = self.share(waiter.mode, waiter.units);
            write!(f, "\n  waiting {}, {share}for {}", Plain(&waiter.label), Rough(waiter.waiting_for_ms))?;
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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
        let text = Resource::from(snapshot(WHOLE, WHOLE)).to_string();
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
    fn locks_have_modes_and_no_numbers() {
        for (holder, waiter, modes) in [
            (WHOLE, WHOLE, ["exclusive", "exclusive"]),
            (WHOLE, 1, ["exclusive", "shared"]),
            (1, WHOLE, ["shared", "exclusive"]),
            (WHOLE / 2 + 1, WHOLE / 2 - 1, ["upgradable", "exclusive"]),
        ] {
            let mut lock = snapshot(WHOLE, holder);
            lock.waiters[0].units = waiter;
            let json = serde_json::to_value(Resource::from(lock)).unwrap();
            assert_eq!([&json["holders"][0]["mode"], &json["waiters"][0]["mode"]], modes);
            assert_eq!(
                (&json["kind"], &json["limit"], &json["holders"][0]["units"]),
                (&"lock".into(), &Value::Null, &Value::Null)
            );
        }
    }

    #[test]
    fn semaphore_with_one_permit_is_no_lock() {
        let shown = Resource::from(snapshot(1, 1));
        assert_eq!(
            (shown.kind, shown.limit, shown.holders[0].units),
            (Some(Kind::Semaphore), Some(1), Some(1))
        );
        assert!(
            shown.to_string().starts_with("a\\u{1b}[2J: 1 permit\n  held by h\\n1, 1 permit, token 7"),
            "{shown}"
        );
    }

    #[test]
    fn json_has_the_promised_shape() {
        let json = serde_json::to_value(Resource::from(snapshot(3, 2))).unwrap();
        let expected = serde_json::json!({
            "key": "a\u{1b}[2J", "kind": "semaphore", "limit": 3,
            "holders": [{"label": "h\n1", "mode": null, "units": 2, "token": 7, "held_for_ms": 61500, "lease_remaining_ms": 900,
                         "value": null, "count": null}],
            "finished": [],
            "waiters": [{"label": "w", "mode": null, "units": 2, "waiting_for_ms": 2000, "lease_remaining_ms": 9000}],
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
            {"label": "h", "token": 7, "started_ms_ago": 61500, "due_in_ms": 540_000}
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
        assert_eq!((shown.limit, shown.holders[0].units, &shown.holders[0].value), (None, None, &None));
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
