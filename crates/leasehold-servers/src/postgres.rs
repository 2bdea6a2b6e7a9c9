//! PostgreSQL servers, run by an unprivileged user, and PgBouncer in front of them.

mod bouncer;
mod database;
mod power;

pub use bouncer::Bouncer;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::place::Place;
use crate::port::free_port;
use crate::process::{Process, wait_until};

/// How long a server may take until it answers: a crashed one recovers first.
const START: Duration = Duration::from_secs(60);

/// The name of a server's log in its directory.
const LOG: &str = "log";

/// A single server in a directory of its own. Its user `postgres` needs no password.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    port: u16,
    place: Place,
    settings: Vec<String>,
}

impl Postgres {
    /// A server that answers. It survives being killed, though not a power cut: nothing is synced to the disk.
    pub fn start() -> Self {
        Self::with(&["fsync=off"])
    }

    /// A server with these settings, like `["max_connections=10"]`.
    ///
    /// # Panics
    /// When there is no PostgreSQL, or it does not answer.
    pub fn with(settings: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Self::inside(directory, settings)
    }

    /// A server in this directory.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    pub fn inside(directory: TempDir, settings: &[&str]) -> Self {
        Self::at(Place::plain(directory), settings)
    }

    /// A server with a clock of its own, for [`set_clock`](Self::set_clock).
    ///
    /// # Panics
    /// As [`with`](Self::with), and when there is no C compiler.
    pub fn with_a_clock() -> Self {
        Self::at(Place::timed(), &["fsync=off"])
    }

    /// Sets its clock so many seconds ahead of the machine's, or behind.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn set_clock(&self, ahead: i64) {
        self.place.clock().set(ahead);
    }

    /// A server on a disk of so many megabytes, for [`fill_disk`](Self::fill_disk); 40 are enough to start. None where this
    /// user may not mount one.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    pub fn on_a_small_disk(megabytes: u32) -> Option<Self> {
        Some(Self::at(Place::small(megabytes)?, &["fsync=off"]))
    }

    /// Leaves no byte of its disk free.
    ///
    /// # Panics
    /// When it is not on a small disk.
    pub fn fill_disk(&self) {
        self.place.disk().fill();
    }

    /// Undoes [`fill_disk`](Self::fill_disk).
    ///
    /// # Panics
    /// When its disk was not filled.
    pub fn free_disk(&self) {
        self.place.disk().free();
    }

    /// A standby that follows this server.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    pub fn standby_of(primary: &Self) -> Self {
        let place = Place::plain(tempfile::tempdir().expect("a temporary directory can be made"));
        place.copy(primary.port);
        Self::on(place, &["fsync=off"])
    }

    /// Makes a standby take over.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t");
    }

    fn at(place: Place, settings: &[&str]) -> Self {
        place.initdb();
        Self::on(place, settings)
    }

    fn on(place: Place, settings: &[&str]) -> Self {
        let port = free_port();
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let process = run(port, &place, &settings);
        let mut server = Self { process, port, place, settings };
        server.wait();
        server
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its database `postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its directory; sockets are in it too.
    pub fn directory(&self) -> &Path {
        self.place.directory()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        log(self.place.directory())
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Stops all its processes in the middle of whatever they do: connections stay open and nobody answers.
    pub fn freeze(&self) {
        self.process.freeze();
        for child in self.children() {
            let _ = kill_process(child, Signal::STOP);
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        for child in self.children() {
            let _ = kill_process(child, Signal::CONT);
        }
        self.process.thaw();
    }

    /// Kills all its processes with -9.
    pub fn kill(&mut self) {
        let children = self.children();
        self.process.kill();
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
    }

    /// Kills it and starts it again on the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Starts it again on the same port after it was killed.
    pub fn start_again(&mut self) {
        // What is left of the old one may still have the memory that they shared.
        wait_until("postgres starts again", START, || {
            self.process = run(self.port, &self.place, &self.settings);
            let mut tries = 0;
            while self.process.is_running() && tries < 200 {
                if answers(self.port) {
                    return true;
                }
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            false
        });
    }

    /// What a statement answers, as `psql` prints it: a line per row, columns with `|` between them.
    ///
    /// # Panics
    /// When the statement fails.
    pub fn sql(&self, statement: &str) -> String {
        let output = psql(self.port, statement);
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// What `pg_dump` writes about a schema.
    ///
    /// # Panics
    /// When it fails.
    pub fn dump(&self, schema: &str) -> String {
        let output = client("pg_dump", self.port).args(["-n", schema]).output().expect("it comes with psql");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Restores what [`dump`](Self::dump) wrote.
    ///
    /// # Panics
    /// When that fails.
    pub fn restore(&self, dump: &str) {
        let file = self.place.directory().join("dump.sql");
        fs::write(&file, dump).expect("the directory is ours");
        let output =
            client("psql", self.port).args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&file).output();
        let output = output.expect("psql is there: `cargo xtask test` installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn wait(&mut self) {
        let (port, process, directory) = (self.port, &mut self.process, self.place.directory());
        wait_until("postgres answers", START, || {
            assert!(process.is_running(), "postgres ended: {}", log(directory));
            answers(port)
        });
    }

    fn children(&self) -> Vec<Pid> {
        let list = format!("/proc/{0}/task/{0}/children", self.process.pid());
        let text = fs::read_to_string(list).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run(port: u16, place: &Place, settings: &[String]) -> Process {
    let (mut words, directory) = (place.around(), place.directory());
    // It has something to say before it knows where to log.
    words.extend(["sh", "-c", "exec \"$@\" 2>>\"$0\""].map(OsString::from));
    words.push(directory.join(LOG).into());
    words.push(program("postgres").into());
    words.push("-D".into());
    words.push(directory.join("data").into());
    let mut settings = settings.to_vec();
    settings.push(format!("port={port}"));
    settings.push("listen_addresses=127.0.0.1".to_owned());
    settings.push(format!("unix_socket_directories={}", directory.display()));
    if !settings.iter().any(|setting| setting.starts_with("max_connections")) {
        settings.push("max_connections=300".to_owned());
    }
    for setting in settings {
        words.push("-c".into());
        words.push(setting.into());
    }
    let first = words.remove(0);
    Process::start(&first, &words)
}

/// PostgreSQL refuses to be root, so root becomes somebody else.
pub(crate) fn around() -> Vec<OsString> {
    if !rustix::process::getuid().is_root() {
        return vec!["env".into()];
    }
    ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "env"].map(OsString::from).to_vec()
}

/// Gives a directory to who runs the server.
pub(crate) fn give_away(directory: &Path) {
    if rustix::process::getuid().is_root() {
        const NOBODY: u32 = 65534;
        chown(directory, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// Gives a file to who runs the server, and to nobody else: PostgreSQL insists for its keys.
///
/// # Panics
/// When the file is not ours.
pub fn keep_private(file: &Path) {
    if let Some(directory) = file.parent() {
        give_away(directory);
    }
    give_away(file);
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// Debian keeps every version in a directory of its own, off the path. `LEASEHOLD_POSTGRES` can name another directory.
fn program(name: &str) -> PathBuf {
    if let Some(directory) = std::env::var_os("LEASEHOLD_POSTGRES") {
        return PathBuf::from(directory).join(name);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|file| file.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}

fn psql(port: u16, statement: &str) -> std::process::Output {
    let mut command = client("psql", port);
    command.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement]);
    command.output().expect("psql is there: `cargo xtask test` installs it")
}

/// One of the programs that connect to a server.
fn client(name: &str, port: u16) -> Command {
    // A frozen server must fail the test, not keep it waiting for ever.
    let mut command = Command::new("timeout");
    command.arg("20").arg(program(name));
    command.args(["-h", "127.0.0.1", "-U", "postgres", "-d", "postgres", "-p", &port.to_string()]);
    command
}

fn answers(port: u16) -> bool {
    psql(port, "SELECT 1").status.success()
}

fn log(directory: &Path) -> String {
    fs::read_to_string(directory.join(LOG)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_server_comes_back_with_what_it_had() {
        let mut server = Postgres::start();
        server.sql("CREATE TABLE t AS SELECT 42 AS x");
        server.restart();
        assert_eq!(server.sql("SELECT x FROM t"), "42");
    }

    #[test]
    fn the_clock_of_a_server_can_be_set() {
        let server = Postgres::with_a_clock();
        let year = || server.sql("SELECT extract(year FROM clock_timestamp())").parse::<u32>().unwrap();
        let now = year();
        server.set_clock(100 * 365 * 24 * 3600);
        assert!((99..=101).contains(&(year() - now)));
    }

    #[test]
    fn a_frozen_server_says_nothing_until_it_is_thawed() {
        let server = Postgres::start();
        server.freeze();
        let port = server.port();
        let asked = std::thread::spawn(move || answers(port));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!asked.is_finished());
        server.thaw();
        assert!(asked.join().unwrap());
    }
}
