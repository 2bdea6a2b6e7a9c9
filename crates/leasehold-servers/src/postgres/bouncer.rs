//! PgBouncer: a pooler between clients and a server.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::{Postgres, around, give_away};
use crate::port::free_port;
use crate::process::{Process, wait_until};

const START: Duration = Duration::from_secs(20);

/// A pooler that gives every transaction another connection.
#[derive(Debug)]
pub struct Bouncer {
    process: Process,
    port: u16,
    _directory: TempDir,
}

impl Bouncer {
    /// In front of this server, with more lines for its `[pgbouncer]` section.
    ///
    /// # Panics
    /// When there is no `pgbouncer`, or it does not listen.
    pub fn to(server: &Postgres, settings: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let (port, path) = (free_port(), directory.path());
        let more = settings.join("\n");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\nlogfile = {}\n\
             default_pool_size = 5\nmax_client_conn = 500\n{more}\n",
            server.port(),
            path.join("log").display(),
        );
        let file = path.join("pgbouncer.ini");
        fs::write(&file, text).expect("the directory is ours");
        give_away(path);
        let mut words = around();
        words.push("/usr/sbin/pgbouncer".into());
        words.push("-q".into());
        words.push(file.into());
        let first = words.remove(0);
        let process = Process::start(&first, &words);
        let mut bouncer = Self { process, port, _directory: directory };
        wait_until("pgbouncer listens", START, || {
            assert!(bouncer.process.is_running(), "pgbouncer ended");
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        bouncer
    }

    /// The URL of the server's database `postgres`, through it.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}
