//! Lines on stderr, written by a thread: a reader that stands still must not keep the runner from renewing its lock.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// If the reader of stderr falls behind by more lines than this, further lines are dropped.
const QUEUED: usize = 1000;
/// How long the order of lines is worth waiting for.
const ORDERLY: Duration = Duration::from_millis(200);
/// How often the thread is asked whether it is done.
const PROBE: Duration = Duration::from_millis(1);

/// `None` where there is no thread to be had.
static WRITER: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
/// Lines that are not written yet.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Writes a line, soon.
pub(super) fn write(line: String) {
    match WRITER.get_or_init(start) {
        Some(writer) => {
            PENDING.fetch_add(1, Ordering::AcqRel);
            if writer.try_send(line).is_err() {
                PENDING.fetch_sub(1, Ordering::AcqRel);
            }
        }
        // A closed stderr has no reader, so the line is dropped.
        None => _ = io::stderr().write_all(line.as_bytes()),
    }
}

fn start() -> Option<SyncSender<String>> {
    let (sender, lines) = sync_channel::<String>(QUEUED);
    let thread = std::thread::Builder::new().name("stderr".to_owned());
    let spawned = thread.spawn(move || {
        for line in lines {
            let _ = io::stderr().write_all(line.as_bytes());
            PENDING.fetch_sub(1, Ordering::AcqRel);
        }
    });
    spawned.ok().map(|_| sender)
}

/// Waits until all lines are written, but not longer than this.
pub(crate) fn flush(limit: Duration) {
    let end = Instant::now() + limit;
    while PENDING.load(Ordering::Acquire) > 0 && Instant::now() < end {
        std::thread::sleep(PROBE);
    }
}

/// Waits until all lines are written, so that the runner's lines precede the program's output. The wait does not block the
/// runtime, and it ends even if stderr has no reader.
pub(crate) async fn flushed() {
    let end = Instant::now() + ORDERLY;
    while PENDING.load(Ordering::Acquire) > 0 && Instant::now() < end {
        tokio::time::sleep(PROBE).await;
    }
}
