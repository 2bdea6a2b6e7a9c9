//! Databases, made where a server will be.

use std::process::Command;

use super::program;
use crate::place::Place;

impl Place {
    /// Makes an empty database there.
    pub(super) fn initdb(&self) {
        let mut initdb = self.command("initdb");
        initdb.args(["-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C"]);
        if matches!(self, Self::Small(_)) {
            // There is no room for one of the usual size.
            initdb.arg("--wal-segsize=1");
        }
        self.make(initdb);
    }

    /// Copies the database of the server on this port, to follow it.
    pub(super) fn copy(&self, port: u16) {
        let mut copy = self.command("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "-p"]);
        copy.arg(port.to_string());
        self.make(copy);
    }

    fn command(&self, name: &str) -> Command {
        let words = self.around();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program(name)).current_dir("/");
        command
    }

    fn make(&self, mut command: Command) {
        let made = command.arg("-D").arg(self.directory().join("data")).output();
        let made = made.expect("PostgreSQL is there: `cargo xtask test` installs it");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "no database could be made: {said}");
    }
}
