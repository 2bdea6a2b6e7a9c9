//! What is in a claim's node: for people, and for whoever acts on the claim. Text, so that `zkCli.sh get` shows it.

use std::fmt::Write;
use std::sync::Arc;

use leasehold_core::rule::Row;

/// The first line: a release that writes another format must not be misread by this one.
const FORMAT: &str = "leasehold 1";

/// The data of a claim's node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// The node of its client's session: what is set there, the client hears of.
    pub(crate) client: String,
    pub(crate) label: Arc<str>,
    /// Its lease in milliseconds, or how long its units stay when nobody owns them; `None`: for ever.
    pub(crate) lease: Option<u64>,
    pub(crate) patience: u64,
    pub(crate) lock_delay: u64,
    pub(crate) count: Option<u64>,
    pub(crate) given: Vec<u64>,
    pub(crate) asked: bool,
    pub(crate) value: Arc<[u8]>,
}

impl Note {
    /// What a row says that is not in its node's name.
    pub(crate) fn of(row: &Row, client: &str) -> Self {
        Self {
            client: client.to_owned(),
            label: row.label.clone(),
            lease: row.lease,
            patience: row.patience,
            lock_delay: row.lock_delay,
            count: row.count,
            given: row.given.clone(),
            asked: row.asked,
            value: row.value.clone(),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{FORMAT}\nclient {}\nlabel {}\n", self.client, self.label.escape_default());
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "{name} {value}");
        };
        if let Some(lease) = self.lease {
            line("lease", &lease);
        }
        line("patience", &self.patience);
        if self.lock_delay > 0 {
            line("delay", &self.lock_delay);
        }
        if let Some(count) = self.count {
            line("count", &count);
        }
        for op in &self.given {
            line("given", op);
        }
        if self.asked {
            line("asked", &"for");
        }
        text.push('\n');
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.value);
        bytes
    }

    /// What these bytes say; `None` when they are not ours.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(2).position(|two| two == b"\n\n")?;
        let mut lines = std::str::from_utf8(&bytes[..end]).ok()?.lines();
        if lines.next()? != FORMAT {
            return None;
        }
        let mut note = Self { value: bytes[end + 2..].into(), ..Self::default() };
        for line in lines {
            let (name, value) = line.split_once(' ')?;
            match name {
                "client" => note.client = value.to_owned(),
                "label" => note.label = unescape(value)?.into(),
                "lease" => note.lease = Some(value.parse().ok()?),
                "patience" => note.patience = value.parse().ok()?,
                "delay" => note.lock_delay = value.parse().ok()?,
                "count" => note.count = Some(value.parse().ok()?),
                "given" => note.given.push(value.parse().ok()?),
                "asked" => note.asked = true,
                _ => return None,
            }
        }
        Some(note)
    }
}

/// Takes [`str::escape_default`] back.
fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        plain.push(match rest.next()? {
            't' => '\t',
            'r' => '\r',
            'n' => '\n',
            'u' => {
                let digits: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
            }
            c => c,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_comes_back() {
        let note = Note {
            client: "c".to_owned(),
            label: "a \"b\"\\ \n\n \u{1f512} c".into(),
            lease: Some(30_000),
            patience: 10_000,
            lock_delay: 5,
            count: Some(3),
            given: vec![1, 2],
            asked: true,
            value: b"line\n\nline\0"[..].into(),
        };
        assert_eq!(Note::parse(&note.bytes()), Some(note));
        assert_eq!(Note::parse(&Note::default().bytes()), Some(Note::default()));
        assert_eq!(Note::parse(b"something else\n\n"), None);
    }
}
