//! The answers of the meta protocol, taken apart. Whatever a server sends, the result is an answer, "not yet" or an
//! error, and never more memory than [`LONGEST_LINE`] and [`LARGEST`] allow.

use std::fmt;

/// The longest line that a server sends.
pub(crate) const LONGEST_LINE: usize = 2048;

/// The largest value: more than any record that we write.
pub(crate) const LARGEST: usize = 2 * 1024 * 1024;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `VA`: a value, with flags.
    Value(Vec<u8>, Flags),
    /// `HD`: done, with flags.
    Done(Flags),
    /// `NS`, `EX`, `NF` or `EN`: not done, because it was there, was changed or was not there.
    Not(Why),
    /// A line of a longer answer, or its last: what statistics and lists are made of.
    Line(String),
    /// The server could not or would not.
    Refused(String),
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It exists already.
    Exists,
    /// It was changed since.
    Changed,
    /// It is not there.
    Missing,
}

/// The words behind the code of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(Vec<String>);

impl Flags {
    /// The number of the flag with this letter.
    pub(crate) fn number(&self, letter: char) -> Option<u64> {
        self.0.iter().find_map(|flag| flag.strip_prefix(letter)).and_then(|text| text.parse().ok())
    }
}

/// What is no answer of memcached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

impl fmt::Display for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the server does not speak memcached's meta protocol: check the address, and use 1.6 or newer",
        )
    }
}

/// The first answer in what was received, and how many bytes it has. `None` when it is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Garbage> {
    let Some(end) = bytes.iter().take(LONGEST_LINE + 1).position(|b| *b == b'\n') else {
        return if bytes.len() > LONGEST_LINE { Err(Garbage) } else { Ok(None) };
    };
    let line = match bytes[..end].strip_suffix(b"\r") {
        Some(line) => line,
        // The lines of a list end in a way of their own.
        None if bytes.starts_with(b"key=") => &bytes[..end],
        None => return Err(Garbage),
    };
    let line = std::str::from_utf8(line).map_err(|_| Garbage)?;
    let (code, rest) = line.split_once(' ').unwrap_or((line, ""));
    let flags = |rest: &str| Flags(rest.split_ascii_whitespace().map(ToOwned::to_owned).collect());
    let reply = match code {
        "VA" => {
            return value(&bytes[end + 1..], rest, flags).map(|found| found.map(|(r, n)| (r, end + 1 + n)));
        }
        "HD" => Reply::Done(flags(rest)),
        "NS" => Reply::Not(Why::Exists),
        "EX" => Reply::Not(Why::Changed),
        "NF" | "EN" => Reply::Not(Why::Missing),
        "ERROR" | "CLIENT_ERROR" | "SERVER_ERROR" | "BUSY" => Reply::Refused(line.to_owned()),
        _ if code == "STAT" || code == "END" || code.starts_with("key=") => Reply::Line(line.to_owned()),
        _ => return Err(Garbage),
    };
    Ok(Some((reply, end + 1)))
}

/// The value behind a line that announces it.
fn value(
    bytes: &[u8],
    announced: &str,
    flags: impl Fn(&str) -> Flags,
) -> Result<Option<(Reply, usize)>, Garbage> {
    let (size, rest) = announced.split_once(' ').unwrap_or((announced, ""));
    let size: usize = size.parse().ok().filter(|size| *size <= LARGEST).ok_or(Garbage)?;
    let Some(end) = bytes.get(size..size + 2) else { return Ok(None) };
    if end != b"\r\n" {
        return Err(Garbage);
    }
    Ok(Some((Reply::Value(bytes[..size].to_vec(), flags(rest)), size + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let flags = |words: &[&str]| Flags(words.iter().map(ToString::to_string).collect());
        for (text, reply) in [
            ("VA 3 c7\r\na\nb\r\n", Reply::Value(b"a\nb".to_vec(), flags(&["c7"]))),
            ("VA 0\r\n\r\n", Reply::Value(Vec::new(), Flags::default())),
            ("HD c12 t5\r\n", Reply::Done(flags(&["c12", "t5"]))),
            ("NS\r\n", Reply::Not(Why::Exists)),
            ("EX \r\n", Reply::Not(Why::Changed)),
            ("NF\r\n", Reply::Not(Why::Missing)),
            ("EN\r\n", Reply::Not(Why::Missing)),
            ("STAT time 5\r\n", Reply::Line("STAT time 5".to_owned())),
            ("key=a%20b exp=-1\n", Reply::Line("key=a%20b exp=-1".to_owned())),
            ("END\r\n", Reply::Line("END".to_owned())),
            ("SERVER_ERROR out of memory\r\n", Reply::Refused("SERVER_ERROR out of memory".to_owned())),
        ] {
            let all = text.to_owned() + "rest";
            assert_eq!(parse(all.as_bytes()), Ok(Some((reply, text.len()))), "{text:?}");
            for cut in 0..text.len() {
                assert_eq!(parse(&text.as_bytes()[..cut]), Ok(None), "{text:?} cut at {cut}");
            }
        }
        assert_eq!(flags(&["c12", "t5"]).number('c'), Some(12));
    }

    #[test]
    fn what_another_server_says_is_garbage() {
        for text in [
            "HTTP/1.1 400 Bad Request\r\n",
            "-ERR unknown command\r\n",
            "\n",
            "VA x\r\n",
            "VA -1\r\n",
            "\u{fc}\r\n",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(Garbage), "{text:?}");
        }
        assert_eq!(parse(b"VA 99999999999999999999\r\n"), Err(Garbage));
        assert_eq!(parse(b"VA 2\r\nabc\r\n"), Err(Garbage));
        assert_eq!(parse(b"\xff\xfe\r\n"), Err(Garbage));
    }

    #[test]
    fn an_endless_line_and_a_huge_value_are_not_waited_for() {
        assert_eq!(parse(&vec![b'x'; LONGEST_LINE + 1]), Err(Garbage));
        assert_eq!(parse(format!("VA {}\r\n", LARGEST + 1).as_bytes()), Err(Garbage));
    }

    #[test]
    fn nothing_that_a_server_sends_makes_us_panic_or_read_beyond_it() {
        let seeds: [&[u8]; 8] = [
            b"VA 3 c7 t-1\r\na\nb\r\nEN\r\n",
            b"HD c12 t5\r\n",
            b"NS\r\nEX\r\nNF\r\n",
            b"STAT time 5\r\nSTAT item_size_max 1048576\r\nEND\r\n",
            b"key=leasehold%3aa%20b exp=-1 la=1 cas=5 fetch=no cls=1 size=70\nEND\r\n",
            b"SERVER_ERROR object too large for cache\r\n",
            b"BUSY currently processing crawler request\r\n",
            b"VERSION 1.6.18\r\n",
        ];
        leasehold_conformance::fuzz::fuzz(&seeds, |bytes| {
            let mut rest = bytes;
            while let Ok(Some((_, length))) = parse(rest) {
                assert!(length > 0 && length <= rest.len());
                rest = &rest[length..];
            }
        });
    }
}
