//! What is printed: text for people, JSON for machines, remarks on stderr.

mod remark;
mod resource;
mod stderr;

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

pub(crate) use self::remark::{Program, Remark, Remarks, complain, say, warn};
pub(crate) use self::resource::Resource;
pub(crate) use self::stderr::{flush, flushed};

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
