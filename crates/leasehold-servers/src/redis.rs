//! Redis servers: single, with replicas, watched by sentinels, in a cluster, with TLS; and Valkey.

mod certificates;
mod cluster;
mod sentinel;

pub use certificates::Certificates;
pub use cluster::Cluster;
pub use sentinel::Sentinel;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::clock::Clock;
use crate::fetched;
use crate::port::free_port;
use crate::process::{Process, wait_until};

/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(20);

/// The name of a server's log in its directory.
const LOG: &str = "log";

/// A single server without persistence, in a directory of its own.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    directory: TempDir,
    /// The program, and the words before it.
    words: Vec<OsString>,
    settings: Vec<String>,
}

impl Redis {
    /// A server that answers.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with more settings: pairs like `["--maxmemory", "2mb"]`.
    ///
    /// # Panics
    /// When there is no `redis-server`, or it does not answer.
    pub fn with(settings: &[&str]) -> Self {
        Self::by(settings, |_| vec![program()])
    }

    /// A Valkey server, whatever else is tested.
    ///
    /// # Panics
    /// When there is none, as [`valkey`] says, or it does not answer.
    pub fn valkey() -> Self {
        let program = valkey().unwrap_or_else(|missing| panic!("{missing}"));
        Self::by(&[], |_| vec![program.into()])
    }

    /// A server that is started by these words, which are made for its directory.
    fn by(settings: &[&str], words: impl FnOnce(&Path) -> Vec<OsString>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let words = words(directory.path());
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let port = free_port();
        let process = run(&words, port, directory.path(), &settings);
        let mut server = Self { process, port, directory, words, settings };
        server.wait();
        server
    }

    /// A replica of another server, by the same program, whose acknowledgements count. More settings as in [`with`](Self::with).
    pub fn replica_of(primary: &Self, settings: &[&str]) -> Self {
        let port = primary.port.to_string();
        let follow = ["--replicaof", "127.0.0.1", &port];
        Self::by(&[&follow, settings].concat(), |_| primary.words.clone()).following(primary)
    }

    /// A replica whose clock is so many seconds behind.
    pub fn replica_behind(primary: &Self, seconds: u32) -> Self {
        let port = primary.port.to_string();
        let follow = ["--replicaof", "127.0.0.1", &port];
        let behind = |directory: &Path| {
            let clock = Clock::inside(directory);
            clock.set(-i64::from(seconds));
            vec!["env".into(), clock.word(), program()]
        };
        Self::by(&follow, behind).following(primary)
    }

    fn following(self, primary: &Self) -> Self {
        // A replica that has the data is sent what comes after it only when it has asked once more.
        primary.cli(&["set", "probe", "1"]);
        wait_until("the replica hears of writes", START, || self.cli(&["exists", "probe"]) == "1");
        primary.cli(&["del", "probe"]);
        self
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills it with -9 and starts it again on the same port. What it did not write to disk is gone.
    pub fn restart(&mut self) {
        self.process.kill();
        self.start_again();
    }

    /// Starts it again on the same port after it was killed or stopped.
    pub fn start_again(&mut self) {
        self.process = run(&self.words, self.port, self.directory.path(), &self.settings);
        self.wait();
    }

    /// What a command answers, as `redis-cli` prints it.
    ///
    /// # Panics
    /// When there is no `redis-cli`.
    pub fn cli(&self, words: &[&str]) -> String {
        cli(self.port, words)
    }

    fn wait(&mut self) {
        let (port, process, directory) = (self.port, &mut self.process, self.directory.path());
        wait_until("the server answers", START, || {
            assert!(process.is_running(), "{:?} ended: {}", self.words, log(directory));
            let said = cli(port, &["ping"]);
            // A server that wants a password or a certificate is there too.
            said.contains("PONG") || said.contains("NOAUTH") || said.contains("closed")
        });
    }
}

fn run(words: &[OsString], port: u16, directory: &Path, settings: &[String]) -> Process {
    let (port, mut words) = (port.to_string(), words.to_vec());
    for word in ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--logfile", LOG, "--dir"] {
        words.push(word.into());
    }
    words.push(directory.into());
    // Replicas get their data at once.
    words.extend(["--repl-diskless-sync-delay", "0"].map(OsString::from));
    words.extend(settings.iter().map(OsString::from));
    let first = words.remove(0);
    Process::start(&first, &words)
}

/// Where `valkey-server` is.
///
/// # Errors
/// How to get it, where there is none.
pub fn valkey() -> Result<PathBuf, String> {
    fetched::find("valkey-server")
}

/// The server that is tested: `LEASEHOLD_REDIS_SERVER` can name another one, of another version or kind.
fn program() -> OsString {
    std::env::var_os("LEASEHOLD_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn log(directory: &Path) -> String {
    std::fs::read_to_string(directory.join(LOG)).unwrap_or_default()
}

fn cli(port: u16, words: &[&str]) -> String {
    let port = port.to_string();
    // A frozen server must fail the test, not keep it waiting for ever.
    let mut program = Command::new("timeout");
    let output = program.args(["10", "redis-cli", "-p", &port]).args(words).output();
    let output = output.expect("redis-cli is there: `cargo xtask test` installs it");
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&said).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_server_that_is_started_again_has_its_port_and_none_of_its_data() {
        let mut server = Redis::start();
        assert_eq!(server.cli(&["set", "key", "value"]), "OK");
        server.restart();
        assert_eq!(server.cli(&["exists", "key"]), "0");
    }

    #[test]
    fn the_clock_of_a_server_can_be_behind() {
        let primary = Redis::start();
        let replica = Redis::replica_behind(&primary, 1000);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let told: u64 = replica.cli(&["time"]).lines().next().unwrap().parse().unwrap();
        assert!((990..=1000).contains(&(now - told)), "{now} {told}");
    }
}
