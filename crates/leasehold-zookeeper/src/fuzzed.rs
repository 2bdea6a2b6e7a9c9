//! Nodes that are not ours.

use leasehold_conformance::fuzz::fuzz;

use crate::names::{Name, decode, encode, parse_limit};
use crate::note::Note;

#[test]
fn no_name_makes_us_panic() {
    let seeds: [&[u8]; 3] = [
        b"w-000102030405060708090a0b0c0d0e0f-1-1-0-1-1-a-0--5",
        b"h-ffffffffffffffffffffffffffffffff-ffffffffffffffff-1-1-0-1-a-b",
        b"l-3-5",
    ];
    fuzz(&seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = (Name::parse(&text), parse_limit(&text));
        if let Some(key) = decode(&text) {
            assert_eq!(encode(&key), text);
        }
    });
}

#[test]
fn no_note_makes_us_panic() {
    let seeds: [&[u8]; 2] =
        [b"leasehold 1\nclient c\nlabel a\\u{e9}\\tb\nlease 3000\npatience 1\ndelay 2\ncount 1\ngiven 4\nasked for\n\nvalue", b"\n\n"];
    fuzz(&seeds, |bytes| drop(Note::parse(bytes)));
}
