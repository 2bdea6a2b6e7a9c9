//! Servers that are none: each says the same to everybody.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// What a listener does with a connection.
#[derive(Clone, Copy)]
pub(crate) enum Speech {
    /// Accepts it, and never says a word.
    Silence,
    /// Closes it at once.
    Close,
    /// Closes it after the first request.
    CloseAfterARequest,
    /// Says this at once, and again after every request.
    Greet(&'static [u8]),
    /// Says this after every request.
    Answer(&'static [u8]),
    /// Says this for ever.
    Endless(&'static [u8]),
    /// Says something else every time, for ever.
    Noise,
}

/// One for each way in which a server can be the wrong one.
pub(crate) static SPEECHES: &[(&str, Speech)] = &[
    ("silence", Speech::Silence),
    ("close", Speech::Close),
    ("close after a request", Speech::CloseAfterARequest),
    ("noise", Speech::Noise),
    ("endless line", Speech::Endless(&[b'a'; 4096])),
    ("endless zeros", Speech::Endless(&[0; 4096])),
    ("endless ones", Speech::Endless(&[0xff; 4096])),
    ("endless header", Speech::Endless(b"HTTP/1.1 200 OK\r\nX-A: b\r\nX-B: c\r\nX-C: d\r\n")),
    ("empty line", Speech::Answer(b"\r\n")),
    ("web page", Speech::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")),
    (
        "redirect",
        Speech::Answer(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
    ),
    ("bad gateway", Speech::Answer(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")),
    ("huge page", Speech::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n[")),
    (
        "huge chunk",
        Speech::Answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n["),
    ),
    ("negative page", Speech::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")),
    ("huge frame", Speech::Greet(b"\0\0\0\x12\x04\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\0")),
    ("alert", Speech::Answer(b"\x15\x03\x03\0\x02\x02\x46")),
    ("ssh", Speech::Greet(b"SSH-2.0-OpenSSH_9.2\r\n")),
    ("huge bulk", Speech::Answer(b"$2147483647\r\nx")),
    ("huge array", Speech::Answer(b"*2147483647\r\n")),
    ("negative bulk", Speech::Answer(b"$-7\r\n")),
    ("deep array", Speech::Answer(&DEEP)),
    ("wrong type", Speech::Answer(b":1\r\n")),
    ("moved to nowhere", Speech::Answer(b"-MOVED 1 127.0.0.1:1\r\n")),
    ("huge length", Speech::Greet(b"\x7f\xff\xff\xff\0\0\0\0")),
    ("negative length", Speech::Greet(b"\xff\xff\xff\xff\0\0\0\0")),
    ("huge row", Speech::Answer(b"R\x7f\xff\xff\xff\0\0\0\0")),
    ("unknown message", Speech::Answer(b"?\0\0\0\x04")),
    ("huge packet", Speech::Greet(b"\xff\xff\xff\0\x0a5.7.0\0")),
    ("huge value", Speech::Answer(b"VA 2147483647 c1\r\nx")),
];

/// One array inside the other.
static DEEP: [u8; 40_000] = {
    let mut bytes = [0; 40_000];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = b"*1\r\n"[at % 4];
        at += 1;
    }
    bytes
};

impl Speech {
    /// A port of loopback where everybody hears it, for as long as this process lives.
    pub(crate) fn listen(self) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                thread::spawn(move || self.speak(connection));
            }
        });
        port
    }

    fn speak(self, mut to: TcpStream) {
        let mut request = [0; 4096];
        let mut read = |mut from: &TcpStream| matches!(from.read(&mut request), Ok(1..));
        match self {
            Self::Silence => while read(&to) {},
            Self::Close => {}
            Self::CloseAfterARequest => drop(read(&to)),
            Self::Greet(words) => while to.write_all(words).is_ok() && read(&to) {},
            Self::Answer(words) => while read(&to) && to.write_all(words).is_ok() {},
            Self::Endless(words) => endlessly(&mut to, || words.repeat(16)),
            Self::Noise => endlessly(&mut to, || (0..4096).map(|_| fastrand::u8(..)).collect()),
        }
    }
}

/// Fast enough to fill a memory, slow enough to leave the processor to others.
fn endlessly(to: &mut TcpStream, mut words: impl FnMut() -> Vec<u8>) {
    while to.write_all(&words()).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
}
