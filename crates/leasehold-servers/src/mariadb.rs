//! MariaDB servers, run by an unprivileged user.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::postgres::{around, give_away};
use crate::process::{Process, free_port, wait_until};

/// How long a server may take until it answers: a crashed one recovers first.
const START: Duration = Duration::from_secs(60);

/// The name of a server's log in its directory.
const LOG: &str = "log";

/// A single server in a directory of its own, with an empty database `test`. Its user `root` needs no password.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
    port: u16,
    directory: TempDir,
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
        let directory = install();
        let port = free_port();
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let process = run(port, directory.path(), &settings);
        let mut server = Self { process, port, directory, settings };
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
        self.directory.path()
    }

    /// Its process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it with -9 and starts it again on the same port.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = run(self.port, self.directory.path(), &self.settings);
        self.wait();
    }

    /// What a statement answers, as `mariadb` prints it: a line per row, columns with tabs between them.
    ///
    /// # Panics
    /// When the statement fails.
    pub fn sql(&self, statement: &str) -> String {
        let output = client(self.port, statement);
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn wait(&mut self) {
        let (port, process, directory) = (self.port, &mut self.process, self.directory.path());
        wait_until("mariadbd answers", START, || {
            let log = || fs::read_to_string(directory.join(LOG)).unwrap_or_default();
            assert!(process.is_running(), "mariadbd ended: {}", log());
            client(port, "SELECT 1").status.success()
        });
    }
}

/// A directory with the tables that every server needs.
fn install() -> TempDir {
    let mut said = String::new();
    // On a busy machine its first start fails now and then for want of memory.
    for _ in 0..3 {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        give_away(directory.path());
        let words = around();
        let mut install = Command::new(&words[0]);
        install.args(&words[1..]).arg("mariadb-install-db").current_dir("/");
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.args(["--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M"]);
        install.arg(dir("--datadir", directory.path()));
        let made = install.output().expect("mariadb-install-db is there: `cargo xtask test` installs it");
        if made.status.success() {
            return directory;
        }
        said = format!("{}{}", String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    }
    panic!("mariadb-install-db failed: {said}");
}

fn run(port: u16, directory: &Path, settings: &[String]) -> Process {
    let mut words = around();
    words.push("/usr/sbin/mariadbd".into());
    words.push("--no-defaults".into());
    words.push(dir("--datadir", directory));
    words.push(file("--socket", directory, "sock"));
    words.push(file("--pid-file", directory, "pid"));
    words.push(file("--log-error", directory, LOG));
    words.push(format!("--port={port}").into());
    let small = ["--bind-address=127.0.0.1", "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=64M"];
    words.extend(small.map(OsString::from));
    words.extend(settings.iter().map(OsString::from));
    let first = words.remove(0);
    Process::start(&first, &words)
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
