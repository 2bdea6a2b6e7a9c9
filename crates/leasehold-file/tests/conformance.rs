//! A directory before the suite that judges every store.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use leasehold_conformance::{Fixture, Hook, Killed, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Fut, Key, Result, Store};
use serde_json::Value;
use tempfile::TempDir;

/// Short, but long against what a machine that runs other tests beside this one takes for a call.
const LEASE: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    victim(open).unwrap_or_else(|| run("file", || Ok(Judged::new())))
}

fn open(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(leasehold_file::file(url)?))
}

/// A directory that one trial has for itself.
#[derive(Debug)]
struct Judged {
    directory: TempDir,
    url: String,
}

impl Judged {
    fn new() -> Self {
        let directory = TempDir::new().expect("there is room for a directory");
        let url = format!("file://{}/locks", directory.path().display());
        Self { directory, url }
    }

    /// Every record, read by hand.
    fn records(&self) -> Vec<Value> {
        let Ok(files) = fs::read_dir(self.directory.path().join("locks/keys")) else {
            return Vec::new();
        };
        let text = |file: std::io::Result<fs::DirEntry>| fs::read_to_string(file.ok()?.path()).ok();
        let record = |text: String| serde_json::from_str(text.split_once('\n')?.1).ok();
        files.filter_map(text).filter_map(record).collect()
    }
}

impl Drop for Judged {
    fn drop(&mut self) {
        // A client that is just being closed may make it again while it is removed; once its parent is gone it cannot.
        let end = Instant::now() + Duration::from_secs(30);
        while fs::remove_dir_all(self.directory.path()).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Fixture for Judged {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { open(&self.url) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Ok(RawState::of_records(&self.records(), key, now.as_millis() as u64))
        })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn crowd(&self) -> usize {
        150
    }

    fn kill_holder<'a>(&'a self, key: &'a Key, lease: Duration) -> Hook<'a, Killed> {
        Hook::Does(Box::pin(kill_one_that_holds(&self.url, key, lease)))
    }
}
