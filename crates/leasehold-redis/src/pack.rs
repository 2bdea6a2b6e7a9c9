//! Arguments for scripts: `MessagePack`, as much of it as they need, and columns.
//!
//! One argument with many typed values is read by one call of the script, where twenty strings would have to be
//! converted one by one.

use std::time::Duration;

/// Longer times are "never": far enough from 2^53 that a script can add two of them exactly.
const LONGEST: u64 = 1 << 51;

/// Values, one after the other.
#[derive(Debug)]
pub(crate) struct Pack(Vec<u8>);

impl Pack {
    pub(crate) fn new() -> Self {
        // Enough for most claims.
        Self(Vec::with_capacity(128))
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }

    /// As it is: the other side knows its length.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// A number that always takes 8 bytes.
    pub(crate) fn column(self, n: u64) -> Self {
        self.raw(&n.to_be_bytes())
    }

    pub(crate) fn number(mut self, n: u64) -> Self {
        match u8::try_from(n) {
            Ok(small @ 0..=0x7f) => self.0.push(small),
            _ => {
                self.0.push(0xcf);
                self.0.extend(n.to_be_bytes());
            }
        }
        self
    }

    pub(crate) fn flag(mut self, is_set: bool) -> Self {
        self.0.push(if is_set { 0xc3 } else { 0xc2 });
        self
    }

    /// Absent is `false`.
    pub(crate) fn maybe(self, n: Option<u64>) -> Self {
        match n {
            Some(n) => self.number(n),
            None => self.flag(false),
        }
    }

    pub(crate) fn time(self, length: Duration) -> Self {
        self.number(millis(length))
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        match u8::try_from(bytes.len()) {
            Ok(length @ 0..=31) => self.0.push(0xa0 | length),
            Ok(length) => self.0.extend([0xd9, length]),
            Err(_) => {
                self.0.push(0xdb);
                // Nothing longer can be sent to a server either.
                self.0.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            }
        }
        self.0.extend(bytes);
        self
    }
}

/// Whole milliseconds, rounded up: a lease never ends early for it.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(LONGEST).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_in_their_shortest_known_form() {
        let packed = Pack::new().number(5).number(300).flag(true).maybe(None).bytes(b"ab").done();
        assert_eq!(packed, [5, 0xcf, 0, 0, 0, 0, 0, 0, 1, 44, 0xc3, 0xc2, 0xa2, b'a', b'b']);
    }

    #[test]
    fn strings_of_any_length_have_a_header() {
        let header = |length: usize| Pack::new().bytes(&vec![0; length]).done()[..5].to_vec();
        assert_eq!(header(40)[..2], [0xd9, 40]);
        assert_eq!(header(300), [0xdb, 0, 0, 1, 44]);
    }

    #[test]
    fn a_time_is_never_shortened_and_never_too_large_to_add() {
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::MAX), LONGEST);
    }
}
