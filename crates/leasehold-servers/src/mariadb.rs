//! MariaDB servers, run by an unprivileged user; or MySQL, where `LEASEHOLD_MARIADBD` names it.

mod program;

pub use program::Kind;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::place::Place;
use crate::port::free_port;
use crate::postgres::keep_private;
use crate::power::PowerDisk;
use crate::process::{Process, wait_until};
use crate::redis::Certificates;
use program::program;

/// How long a server may take until it answers: a crashed one recovers first.
const START: Duration = Duration::from_secs(60);

/// The size of a disk whose power can be cut.
const MEGABYTES: u32 = 400;

/// The name of a server's log in its directory.
const LOG: &str = "log";

/// A single server in a directory of its own, with an empty database `test`. Its user `root` needs no password.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
    port: u16,
    place: Place,
    /// Like `TZ=UTC`.
    environment: Vec<OsString>,
    settings: Vec<String>,
}

impl MariaDb {
    /// A server that answers. It survives being killed, though not a power cut.
    pub fn start() -> Self {
        Self::with(&["--innodb-flush-log-at-trx-commit=2"])
    }

    /// A server with these settings, like `["--max-connections=10"]`.
    ///
    /// # Panics
    /// When there is no MariaDB, or it does not answer.
    pub fn with(settings: &[&str]) -> Self {
        Self::at(install(plain), Vec::new(), settings.iter().map(ToString::to_string).collect())
    }

    /// A server whose clock shows the time of a place, as `TZ` says it.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    pub fn in_time_zone(zone: &str) -> Self {
        Self::at(install(plain), vec![format!("TZ={zone}").into()], usual())
    }

    /// A server with a clock of its own, for [`set_clock`](Self::set_clock).
    ///
    /// # Panics
    /// As [`with`](Self::with), and when there is no C compiler.
    pub fn with_a_clock() -> Self {
        Self::at(install(|| Some(Place::timed())), Vec::new(), usual())
    }

    /// Sets its clock so many seconds ahead of the machine's, or behind.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn set_clock(&self, ahead: i64) {
        self.place.clock().set(ahead);
    }

    /// A server on a disk of so many megabytes, for [`fill_disk`](Self::fill_disk); 150 are enough to start. None where this
    /// user may not mount one.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    pub fn on_a_small_disk(megabytes: u32) -> Option<Self> {
        Some(Self::at(try_install(|| Place::small(megabytes))?, Vec::new(), usual()))
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

    /// A server with these settings, on a disk whose power can be cut: see [`cut_power`](Self::cut_power).
    ///
    /// # Errors
    /// Why this machine has no such disk, for the list of ignored tests.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    pub fn on_a_power_disk(settings: &[&str]) -> Result<Self, String> {
        drop(PowerDisk::of(MEGABYTES)?);
        let place = try_install(|| PowerDisk::of(MEGABYTES).ok().map(Place::Powered));
        let place = place.ok_or("a disk that was there a moment ago cannot be made again")?;
        Ok(Self::at(place, Vec::new(), settings.iter().map(ToString::to_string).collect()))
    }

    /// Cuts its power, and starts it again with what was synced, on the same port.
    ///
    /// # Panics
    /// When it is not on such a disk, or does not start.
    pub fn cut_power(&mut self) {
        self.place.power().cut();
        self.process.kill();
        self.place.power().restore();
        self.process = run(self.port, &self.place, &self.environment, &self.settings);
        self.wait();
    }

    /// A server that speaks TLS to those who ask for it, and knows client certificates of the same authority.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    pub fn with_tls(files: &Certificates) -> Self {
        let (place, mut settings) = (install(plain), usual());
        let mut keep = |name: &str, from: PathBuf| {
            let to = place.directory().join(name);
            fs::copy(from, &to).expect("the directory can be written");
            keep_private(&to);
            settings.push(format!("--ssl-{name}={}", to.display()));
        };
        keep("ca", files.certificate("ca"));
        keep("cert", files.certificate("server"));
        keep("key", files.key("server"));
        Self::at(place, Vec::new(), settings)
    }

    fn at(place: Place, environment: Vec<OsString>, settings: Vec<String>) -> Self {
        let port = free_port();
        let process = run(port, &place, &environment, &settings);
        let mut server = Self { process, port, place, environment, settings };
        server.wait();
        server.sql("CREATE DATABASE test");
        server
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its database `test`.
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/test", self.port)
    }

    /// Its directory; the socket `sock` is in it too.
    pub fn directory(&self) -> &Path {
        self.place.directory()
    }

    /// Its process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it with -9 and starts it again on the same port.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = run(self.port, &self.place, &self.environment, &self.settings);
        self.wait();
    }

    /// What a statement answers, as `mariadb` prints it: a line per row, columns with tabs between them.
    ///
    /// # Panics
    /// When the statement fails.
    pub fn sql(&self, statement: &str) -> String {
        let output = client(self.port, statement);
        let (said, log) = (String::from_utf8_lossy(&output.stderr), || log(self.place.directory()));
        assert!(output.status.success(), "{statement}: {said}; the server's log: {}", log());
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The numbers of all connections that use the database `test`.
    pub fn connections(&self) -> Vec<u64> {
        // Not from the information schema: that takes a table on the disk, for want of which 10.11 was seen to crash.
        let all = self.sql("SHOW PROCESSLIST");
        let of_test = all.lines().filter_map(|line| {
            let mut columns = line.split('\t');
            let number = columns.next()?;
            (columns.nth(2) == Some("test")).then(|| number.parse().expect("connections have numbers"))
        });
        of_test.collect()
    }

    /// Ends a connection, if it is still there.
    pub fn end_connection(&self, number: u64) {
        client(self.port, &format!("KILL {number}"));
    }

    fn wait(&mut self) {
        let (port, process, directory) = (self.port, &mut self.process, self.place.directory());
        wait_until("the server answers", START, || {
            assert!(process.is_running(), "the server ended: {}", log(directory));
            client(port, "SELECT 1").status.success()
        });
    }
}

/// Written to the disk now and then: enough for a server that is killed.
fn usual() -> Vec<String> {
    vec!["--innodb-flush-log-at-trx-commit=2".to_owned()]
}

fn plain() -> Option<Place> {
    Some(Place::plain(tempfile::tempdir().expect("a temporary directory can be made")))
}

fn install(place: fn() -> Option<Place>) -> Place {
    try_install(place).expect("such a place can be had everywhere")
}

/// A place with the tables that every server needs.
fn try_install(place: impl Fn() -> Option<Place>) -> Option<Place> {
    let mut said = String::new();
    // On a busy machine its first start fails now and then for want of memory.
    for _ in 0..3 {
        let place = place()?;
        let words = [place.around(), Kind::tested().install()].concat();
        let mut install = Command::new(&words[0]);
        install.args(&words[1..]).arg(dir("--datadir", place.directory())).current_dir("/");
        let made = install.output().expect("its program is there: `cargo xtask test` installs it");
        if made.status.success() {
            return Some(place);
        }
        said = format!("{}{}", String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    }
    panic!("a server could not be set up: {said}");
}

fn run(port: u16, place: &Place, environment: &[OsString], settings: &[String]) -> Process {
    // They end with `env`, or with words for it.
    let (mut words, directory) = (place.around(), place.directory());
    words.extend_from_slice(environment);
    words.push(program());
    words.push("--no-defaults".into());
    words.push(dir("--datadir", directory));
    words.push(file("--socket", directory, "sock"));
    words.push(file("--pid-file", directory, "pid"));
    words.push(file("--log-error", directory, LOG));
    words.push(file("--tmpdir", directory, ""));
    words.push(format!("--port={port}").into());
    let small = ["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M"];
    words.extend(small.iter().chain(Kind::tested().settings()).map(OsString::from));
    words.extend(settings.iter().map(OsString::from));
    let first = words.remove(0);
    Process::start(&first, &words)
}

fn log(directory: &Path) -> String {
    fs::read_to_string(directory.join(LOG)).unwrap_or_default()
}

fn dir(name: &str, directory: &Path) -> OsString {
    file(name, directory, "data")
}

fn file(name: &str, directory: &Path, file: &str) -> OsString {
    format!("{name}={}", directory.join(file).display()).into()
}

fn client(port: u16, statement: &str) -> std::process::Output {
    let port = port.to_string();
    // A frozen server must fail the test, not keep it waiting for ever.
    let mut command = Command::new("timeout");
    command.args([
        "20",
        "mariadb",
        "--no-defaults",
        "-h",
        "127.0.0.1",
        "-u",
        "root",
        "-P",
        &port,
        "-N",
        "-B",
        "-e",
        statement,
    ]);
    command.output().expect("mariadb is there: `cargo xtask test` installs it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_server_comes_back_with_what_it_had() {
        let mut server = MariaDb::start();
        server.sql("CREATE TABLE test.t AS SELECT 42 AS x");
        server.restart();
        assert_eq!(server.sql("SELECT x FROM test.t"), "42");
    }
}
