//! A directory before the suite that judges every store.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_conformance::{Fixture, Hook, RawState, kill_one_that_holds, run, victim};
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
        let Ok(files) = std::fs::read_dir(self.directory.path().join("locks/keys")) else {
            return Vec::new();
        };
        let text = |file: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(file.ok()?.path()).ok();
        let record = |text: String| serde_json::from_str(text.split_once('\n')?.1).ok();
        files.filter_map(text).filter_map(record).collect()
    }
}

/// Whether anything in a record matters to anybody.
fn is_in_use(record: &Value) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let refused = record["refused"].as_object().into_iter().flat_map(|refused| refused.values());
    let lasts = |until: &Value| until.as_u64().is_some_and(|until| u128::from(until) > now);
    let is_claimed = record["claims"].as_array().is_some_and(|claims| !claims.is_empty());
    is_claimed || record["effective"].is_u64() || refused.into_iter().any(lasts)
}

impl Fixture for Judged {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { open(&self.url) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let all = self.records();
            let here = all.iter().filter(|record| record["key"] == key.as_str());
            let claims: Vec<_> =
                here.flat_map(|record| record["claims"].as_array().cloned()).flatten().collect();
            let held = |claim: &Value| claim["held"].as_u64().unwrap_or(0);
            let wanted = |claim: &Value| claim["wanted"].as_u64().unwrap_or(0);
            Ok(RawState {
                holders: claims.iter().filter(|claim| held(claim) > 0).count(),
                units: claims.iter().map(held).sum(),
                waiters: claims.iter().filter(|claim| wanted(claim) > held(claim)).count(),
                residue: all.iter().filter(|record| is_in_use(record)).count(),
            })
        })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn crowd(&self) -> usize {
        150
    }

    fn kill_holder<'a>(&'a self, key: &'a Key) -> Hook<'a> {
        Hook::Does(Box::pin(kill_one_that_holds(&self.url, key, LEASE)))
    }
}
