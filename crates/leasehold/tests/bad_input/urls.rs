//! URLs that are none: refused as `Invalid`, with words, before anything is sent and without the password.

use leasehold::ErrorKind;
use libtest_mimic::Trial;

use crate::ear::SECRET;
use crate::schemes::{SCHEMES, Scheme};

const HOSTS: &[&str] = &[
    "",
    ",",
    "a,",
    ",a",
    "a,,b",
    " ",
    "a b",
    "a\tb",
    "a\nb",
    "a\0b",
    "a%0ab",
    "a%00",
    "%ff",
    "[",
    "]",
    "[]",
    "[::1",
    "::1",
    "[x]",
    "[::1]1",
    "[::1]:",
    "[::g]:1",
    "a#b",
    "a\\b",
    "a;b",
    "a=b",
    "<a>",
    "\"a\"",
    "a|b",
    "a%2fb",
    "a%40b",
    ":1",
    "a:",
    "a:x",
    "a:0",
    "a:-1",
    "a:+1",
    "a: 1",
    "a:1 ",
    "a:0x10",
    "a:1.5",
    "a:65536",
    "a:99999999999999999999",
    "a:1:2",
    "a:1,b:x",
    "a:\u{0661}",
    "a:1%",
];

const PARAMETERS: &[&str] = &[
    "x",
    "x=1",
    "=",
    "=1",
    "timeout",
    "timeout=",
    "timeout=0",
    "timeout=0s",
    "timeout=1",
    "timeout=-1s",
    "timeout=+1s",
    "timeout=1.5s",
    "timeout=1 s",
    "timeout=1parsec",
    "timeout=NaN",
    "timeout=inf",
    "timeout=1e3s",
    "timeout=s",
    "timeout=18446744073709551616s",
    "timeout=4294967296s",
    "timeout=1s&timeout=2s",
    "TIMEOUT=1s",
    "timeout=%ff",
    "timeout=\u{0661}s",
    "time%6fut=1s",
    "timeout=1s&x=1",
    "timeout=1s;x=1",
    "a\nb=1",
    "\u{1f512}=1",
];

/// Stores that are on this machine have no hosts, ports and passwords to get wrong, only paths and parameters.
const LOCAL: &[&str] = &[
    "file:",
    "file://",
    "file://host",
    "file://host/dir",
    "file://./dir",
    "file:///a%00b",
    "file:///a%ff",
    "file:///a?x",
    "file:///a?x=1",
    "file:///a?=1",
    "file:///a?network",
    "file:///a?network=",
    "file:///a?network=yes",
    "file:///a?network=ON",
    "file:///a?timeout=0s",
    "file:///a?timeout=1",
    "file:///a?timeout=-1s",
    "file:///a?timeout=1h30",
    "file:///a?timeout=1s&timeout=2s",
    "file:///a?timeout=1s&x=2",
    "file:///a?timeout=99999999999s",
    "file:///a?timeout=%ff",
    " file:///a",
    "file",
    "file;///a",
    "sqlite://host/a.db",
    "sqlite://./a.db",
    "sqlite:///a%00b",
    "sqlite:///a%ff",
    "sqlite:///a?x",
    "sqlite:///a?x=1",
    "sqlite:///a?sync",
    "sqlite:///a?sync=",
    "sqlite:///a?sync=on",
    "sqlite:///a?sync=FULL",
    "sqlite:///a?mode=memory",
    "sqlite:///a?sync=full&x=1",
    "sqlite",
    "sqlite3:///a",
    " sqlite:",
    "memory://a/b",
    "memory://a?b",
    "memory://a#b",
    "memory://a@b",
    "memory:///",
    "memory://?x=1",
    "memory",
    " memory://",
    "memory ://",
];

/// All of them.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for scheme in SCHEMES {
        for (at, url) in spoilt(scheme).into_iter().enumerate() {
            let shown: String = url.replace(SECRET, "***").escape_debug().take(80).collect();
            let name = format!("{}::urls::{at:03} {shown}", scheme.name);
            trials.push(Trial::test(name, move || refused(&url)));
        }
        trials.push(Trial::test(format!("{}::urls::near misses", scheme.name), move || near_misses(scheme)));
    }
    trials.extend(LOCAL.iter().map(|url| Trial::test(format!("local::urls::{url}"), || refused(url))));
    trials
}

/// Every URL of this scheme with something wrong.
fn spoilt(scheme: &Scheme) -> Vec<String> {
    let long = "a".repeat(1 << 20);
    let mut urls: Vec<_> = HOSTS.iter().map(|host| scheme.url(host, "")).collect();
    urls.extend(PARAMETERS.iter().map(|parameters| scheme.url("localhost:1", parameters)));
    urls.push(scheme.url("localhost:1", &format!("{long}=1")));
    urls.push(scheme.url(&format!("{long}:x"), ""));
    let name = scheme.scheme();
    let rest = ["", ":", ":/", "://", ":///", ":localhost", "//localhost", "://?timeout=1s", "://#"];
    urls.extend(rest.iter().map(|rest| format!("{name}{rest}")));
    let around = scheme.after_the_scheme();
    urls.extend(
        [" ", "\n", "-", "+", "x+", "\u{feff}"].iter().map(|before| format!("{before}{name}:{around}")),
    );
    if scheme.has_login() {
        for user in ["%ff", "%c3%28"] {
            urls.push(scheme.url("localhost:1", "").replace("app:", &format!("{user}:")));
            urls.push(scheme.url("localhost:1", "").replace(SECRET, &format!("{SECRET}{user}")));
        }
    }
    urls
}

/// It is refused, and says why.
fn refused(url: &str) -> Result<(), libtest_mimic::Failed> {
    match leasehold::open(url) {
        Ok(store) => Err(format!("it was taken for a URL of {}", store.info().name).into()),
        Err(error) => {
            let said = format!("{error} / {error:?}");
            let is_short = said.len() < 4000;
            match (error.kind(), said.contains(SECRET), is_short) {
                (ErrorKind::Invalid, false, true) => Ok(()),
                (kind, _, true) => Err(format!("{kind}: {said}").into()),
                (_, _, false) => Err(format!("{} characters", said.len()).into()),
            }
        }
    }
}

/// A letter too few, twice or in another's place: it is said which scheme was meant.
fn near_misses(scheme: &Scheme) -> Result<(), libtest_mimic::Failed> {
    let name = scheme.scheme();
    let known: Vec<_> = SCHEMES.iter().map(Scheme::scheme).collect();
    for at in 0..name.len() {
        let (before, after) = name.split_at(at);
        let twice = format!("{before}{}{after}", &after[..1]);
        let missing = format!("{before}{}", &after[1..]);
        for wrong in [twice, missing] {
            let url = format!("{wrong}:{}", scheme.after_the_scheme());
            if known.contains(&wrong.as_str()) || leasehold::open(&url).is_ok() {
                continue;
            }
            let error = leasehold::open(&url).map(|_| ()).expect_err("it names no store").to_string();
            if !error.contains("did you mean") || error.contains(SECRET) {
                return Err(format!("{wrong}: {error}").into());
            }
        }
    }
    Ok(())
}
