//! Wrong bytes by the million, for whatever reads bytes that somebody else may have written.
//!
//! The parsers are private, so each is fuzzed by a test beside it rather than by a program of its own. A second
//! in a usual run; `LEASEHOLD_FUZZ=60` makes it a minute each.

use std::time::{Duration, Instant};

/// Says for how many seconds each target runs.
pub const SECONDS: &str = "LEASEHOLD_FUZZ";

/// What is wrong more often than chance would have it.
const ODD: &[&[u8]] = &[
    b"",
    b"0",
    b"-1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775808",
    b"ffffffffffffffffffffffffffffffff",
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\r\n",
    b"\n\n",
    b" ",
    b"%",
    b"%ff",
    b"\\u{110000}",
    b"null",
    b"[[[[[[[[",
    b"{\"a\":",
    b"\xe2\x82",
    "\u{1f512}".as_bytes(),
];

/// Calls `target` with the seeds and with much that is nearly one, until time is over. How often that was.
///
/// ```
/// use leasehold_conformance::fuzz::fuzz;
/// fuzz(&[b"42"], |bytes| {
///     let _ = std::str::from_utf8(bytes).map(str::parse::<u8>); // must not panic, whatever it is given
/// });
/// ```
///
/// # Panics
/// When `target` does; the bytes are printed.
pub fn fuzz(seeds: &[&[u8]], target: impl Fn(&[u8])) -> u64 {
    let told = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok());
    let until = Instant::now() + told.map_or(Duration::from_millis(500), Duration::from_secs);
    // Always the same ones first, so that what fails once fails again.
    let mut chance = fastrand::Rng::with_seed(7);
    let mut calls = 0;
    let mut call = |bytes: &[u8]| {
        let shown = Shown(bytes);
        target(bytes);
        std::mem::forget(shown);
        calls += 1;
    };
    seeds.iter().for_each(|seed| call(seed));
    while Instant::now() < until {
        for _ in 0..100 {
            let mut bytes = chance.choice(seeds).map_or_else(Vec::new, |seed| seed.to_vec());
            for _ in 0..chance.u8(1..6) {
                spoil(&mut bytes, seeds, &mut chance);
            }
            call(&bytes);
        }
    }
    report(calls);
    calls
}

#[allow(clippy::print_stderr, reason = "a test harness")]
fn report(calls: u64) {
    eprintln!("{calls} inputs");
}

/// One change.
fn spoil(bytes: &mut Vec<u8>, seeds: &[&[u8]], chance: &mut fastrand::Rng) {
    const LONGEST: usize = 1 << 14;
    let (from, to) = (chance.usize(..=bytes.len()), chance.usize(..=bytes.len()));
    let range = from.min(to)..from.max(to);
    match chance.u8(..8) {
        0 if !bytes.is_empty() => {
            let at = chance.usize(..bytes.len());
            bytes[at] ^= 1 << chance.u8(..8);
        }
        1 if !bytes.is_empty() => {
            let at = chance.usize(..bytes.len());
            bytes[at] = chance.u8(..);
        }
        2 => drop(bytes.drain(range)),
        3 => bytes.truncate(from),
        4 => {
            let twice = bytes[range].to_vec();
            bytes.splice(to..to, twice);
        }
        5 => {
            let other = chance.choice(seeds).copied().unwrap_or_default();
            let at = chance.usize(..=other.len());
            bytes.truncate(from);
            bytes.extend_from_slice(&other[at..]);
        }
        _ => {
            let odd = chance.choice(ODD).copied().unwrap_or_default();
            bytes.splice(range, odd.iter().copied());
        }
    }
    bytes.truncate(LONGEST);
}

/// Prints the bytes when it is dropped, which happens only in a panic.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    #[allow(clippy::print_stderr, reason = "a test harness")]
    fn drop(&mut self) {
        eprintln!("it panicked for \"{}\"", self.0.escape_ascii());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_seeds_come_first_and_then_others() {
        let seen = RefCell::new(Vec::new());
        let calls = fuzz(&[b"one", b"two"], |bytes| {
            if seen.borrow().len() < 1000 {
                seen.borrow_mut().push(bytes.to_vec());
            }
        });
        let seen = seen.into_inner();
        assert_eq!(seen[..2], [b"one".to_vec(), b"two".to_vec()]);
        assert!(calls > 1000 && seen.into_iter().collect::<HashSet<_>>().len() > 200);
    }

    #[test]
    #[should_panic(expected = "a number too large")]
    fn a_parser_that_panics_is_found() {
        fuzz(&[b"12"], |bytes| {
            let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<u64>().ok());
            assert!(number.is_none_or(|number| number < 1 << 60), "a number too large");
        });
    }
}
