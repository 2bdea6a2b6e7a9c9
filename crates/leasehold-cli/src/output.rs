//! What is printed: text for people, JSON for machines, remarks on stderr.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use leasehold::{Holder, Key, Snapshot, WHOLE, Waiter};
use serde::Serialize;

/// A remark for people. Silence on stderr is success.
pub(crate) fn say(message: impl fmt::Display) {
    // When stderr is gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "leasehold: {message}");
}

/// Prints a line of the result.
pub(crate) fn print(line: impl fmt::Display) -> io::Result<()> {
    print_bytes(format!("{line}\n").as_bytes())
}

/// Prints a result. A reader that has gone away (`| head`) is no failure.
pub(crate) fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result,
    }
}

/// A resource, in the shape that `--json` promises.
#[derive(Debug, Serialize)]
pub(crate) struct Resource {
    key: String,
    /// `null` when the key is free: then it has none.
    limit: Option<u64>,
    holders: Vec<HolderShape>,
    waiters: Vec<WaiterShape>,
}

#[derive(Debug, Serialize)]
struct HolderShape {
    label: String,
    units: u64,
    token: u64,
    held_for_ms: u64,
    /// `null` for state that no process owns.
    lease_remaining_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct WaiterShape {
    label: String,
    units: u64,
    waiting_for_ms: u64,
    lease_remaining_ms: u64,
}

impl Resource {
    /// What `show` prints of a key; `None` when it is free.
    pub(crate) fn new(key: &Key, snapshot: Option<Snapshot>) -> Self {
        let free = || Self { key: key.as_str().to_owned(), limit: None, holders: vec![], waiters: vec![] };
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
        show_as_one_of_one(&mut snapshot);
        Self {
            key: snapshot.key.as_str().to_owned(),
            limit: Some(snapshot.limit),
            holders: snapshot.holders.into_iter().map(HolderShape::from).collect(),
            waiters: snapshot.waiters.into_iter().map(WaiterShape::from).collect(),
        }
    }
}

/// A lock that everybody wants as a whole is one of one to people: how finely it could be shared means nothing.
fn show_as_one_of_one(snapshot: &mut Snapshot) {
    let (holders, waiters) = (&mut snapshot.holders, &mut snapshot.waiters);
    let mut units = holders.iter_mut().map(|h| &mut h.units).chain(waiters.iter_mut().map(|w| &mut w.units));
    if snapshot.limit == WHOLE && units.all(|units| *units == WHOLE) {
        snapshot.limit = 1;
        holders.iter_mut().for_each(|holder| holder.units = 1);
        waiters.iter_mut().for_each(|waiter| waiter.units = 1);
    }
}

impl From<Holder> for HolderShape {
    fn from(holder: Holder) -> Self {
        Self {
            label: holder.label,
            units: holder.units,
            token: holder.token,
            held_for_ms: millis(holder.held_for),
            lease_remaining_ms: holder.lease_left.map(millis),
        }
    }
}

impl From<Waiter> for WaiterShape {
    fn from(waiter: Waiter) -> Self {
        Self {
            label: waiter.label,
            units: waiter.units,
            waiting_for_ms: millis(waiter.waiting_for),
            lease_remaining_ms: millis(waiter.lease_left),
        }
    }
}

/// One line for the key, one for everybody on it.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Plain(&self.key))?;
        match self.limit {
            None => return f.write_str("free"),
            Some(1) => f.write_str("lock")?,
            Some(WHOLE) => f.write_str("read-write lock")?,
            Some(limit) => write!(f, "{limit} permits")?,
        }
        for holder in &self.holders {
            let units = self.units(holder.units);
            write!(f, "\n  held by {}, {units}token {}, ", Plain(&holder.label), holder.token)?;
            write!(f, "for {}, ", Rough(holder.held_for_ms))?;
            match holder.lease_remaining_ms {
                Some(left) => write!(f, "lease ends in {}", Rough(left))?,
                None => f.write_str("no lease")?,
            }
        }
        for waiter in &self.waiters {
            let units = self.units(waiter.units);
            write!(f, "\n  waiting {}, {units}for {}", Plain(&waiter.label), Rough(waiter.waiting_for_ms))?;
        }
        Ok(())
    }
}

/// Text that cannot play tricks on a terminal.
pub(crate) struct Plain<'a>(pub(crate) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            // The second group turns the direction of what follows.
            c if c.is_control() => write!(f, "{}", c.escape_default()),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                write!(f, "{}", c.escape_unicode())
            }
            c => write!(f, "{c}"),
        })
    }
}

/// Milliseconds, to the precision that people want.
struct Rough(u64);

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = Duration::from_millis(self.0);
        let rough = if self.0 < 1000 { exact } else { Duration::from_secs(exact.as_secs()) };
        write!(f, "{}", humantime::format_duration(rough))
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
            lease_left: Duration::from_secs(9),
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
            "key": "a\u{1b}[2J", "limit": 3,
            "holders": [{"label": "h\n1", "units": 2, "token": 7, "held_for_ms": 61500, "lease_remaining_ms": 900}],
            "waiters": [{"label": "w", "units": 2, "waiting_for_ms": 2000, "lease_remaining_ms": 9000}],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn a_free_key_keeps_all_fields() {
        let json = serde_json::to_value(Resource::new(&Key::new("k").unwrap(), None)).unwrap();
        assert_eq!(json, serde_json::json!({"key": "k", "limit": null, "holders": [], "waiters": []}));
    }
}
