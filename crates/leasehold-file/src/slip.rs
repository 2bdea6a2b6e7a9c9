//! A record's file: one line about it, and the record.
//!
//! The line says how long the record is: a file that is shorter was being written when the power failed, and is as good
//! as none, because whoever wrote it is gone too.

/// What the line starts with, and the version of this format.
const MARK: &str = "leasehold 1";

/// The longest line.
const LINE: usize = 100;

/// The largest file that is read at all.
pub(crate) const LARGEST: usize = 4 * 1024 * 1024;

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slip {
    /// Changes with every write, and rises.
    pub(crate) version: u64,
    /// Until when it is kept, in milliseconds; 0 for ever.
    pub(crate) until: u64,
    pub(crate) record: Vec<u8>,
}

/// What is in a file that we did not write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Foreign;

impl Slip {
    pub(crate) fn write(version: u64, until: u64, record: &[u8]) -> Vec<u8> {
        let mut text = format!("{MARK} {version} {until} {}\n", record.len()).into_bytes();
        text.extend_from_slice(record);
        text
    }

    /// What a file says; `None` when it was never finished.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, Foreign> {
        let Some(end) = bytes.iter().take(LINE).position(|byte| *byte == b'\n') else {
            let begun = bytes.len().min(MARK.len());
            let is_ours = bytes.len() < LINE && bytes[..begun] == MARK.as_bytes()[..begun];
            return if is_ours { Ok(None) } else { Err(Foreign) };
        };
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| Foreign)?;
        let numbers = line.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(' ')).ok_or(Foreign)?;
        let numbers: Vec<u64> = numbers.split(' ').map_while(|number| number.parse().ok()).collect();
        let [version, until, length] = numbers[..] else { return Err(Foreign) };
        let record = &bytes[end + 1..];
        match usize::try_from(length) {
            Ok(length) if record.len() == length => {
                Ok(Some(Self { version, until, record: record.to_vec() }))
            }
            Ok(length) if record.len() < length => Ok(None),
            _ => Err(Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_was_cut_is_none() {
        let text = Slip::write(17, 5, b"{\"a\":1}\n");
        let slip = Slip { version: 17, until: 5, record: b"{\"a\":1}\n".to_vec() };
        assert_eq!(Slip::read(&text), Ok(Some(slip)));
        for cut in 0..text.len() {
            assert_eq!(Slip::read(&text[..cut]), Ok(None), "cut at {cut}");
        }
    }

    #[test]
    fn what_others_wrote_is_foreign() {
        for text in ["x", "{}", "leasehold 2 1 0 0\n", "leasehold 1 1 0\n", "leasehold 1 1 0 0\nx", "\n"] {
            assert_eq!(Slip::read(text.as_bytes()), Err(Foreign), "{text:?}");
        }
        assert_eq!(Slip::read(&[b'l'; 200]), Err(Foreign));
    }

    #[test]
    fn no_file_makes_us_panic() {
        let seeds: [&[u8]; 4] = [
            b"leasehold 1 17 0 7\n{\"a\":1}",
            b"leasehold 1 1794814058074105 1794814058074 2\n{}",
            b"leasehold 1 17 0 200\n{\"lease",
            b"a shopping list\n",
        ];
        leasehold_conformance::fuzz::fuzz(&seeds, |bytes| {
            if let Ok(Some(slip)) = Slip::read(bytes) {
                assert!(bytes.ends_with(&slip.record));
            }
        });
    }
}
