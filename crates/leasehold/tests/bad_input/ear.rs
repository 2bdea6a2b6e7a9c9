//! Hears everything that is logged, and remembers the password.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_subscriber::filter::LevelFilter;

/// The password in every URL here. Long and odd enough to be in no text by accident.
pub(crate) const SECRET: &str = "swordfish-9f27";

static HEARD: OnceLock<String> = OnceLock::new();
static LINES: AtomicU64 = AtomicU64::new(0);

/// Listens from now on.
pub(crate) fn listen() {
    tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(|| Ear).with_ansi(false).init();
}

/// The first line that had the password in it.
pub(crate) fn heard() -> Option<&'static String> {
    HEARD.get()
}

/// How much was heard.
pub(crate) fn lines() -> u64 {
    LINES.load(Ordering::Relaxed)
}

struct Ear;

impl Write for Ear {
    /// An event is written whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = line.len();
        LINES.fetch_add(1, Ordering::Relaxed);
        let line = String::from_utf8_lossy(line);
        if line.contains(SECRET) {
            let _ = HEARD.set(line.chars().take(2000).collect());
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
