//! Consul servers: single, and three that elect a leader.

mod overheard;
mod trio;

pub use overheard::Overheard;
pub use trio::Trio;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::fetched;
use crate::http::ask;
use crate::port::free_port;
use crate::process::{Process, wait_until};
use crate::redis::Certificates;

/// How long a server may take until it has a leader.
const START: Duration = Duration::from_secs(60);

/// Settings of every server: short sessions, quick elections, and nobody is thrown out for being slow.
const SETTINGS: &str = r#"
session_ttl_min = "1s"
performance { raft_multiplier = 1 }
autopilot { cleanup_dead_servers = false }
leave_on_terminate = false
skip_leave_on_interrupt = true
disable_update_check = true
limits { http_max_conns_per_client = 5000 }
"#;

/// The ports of one server.
#[derive(Clone, Copy, Debug)]
struct Ports {
    http: u16,
    server: u16,
    gossip: u16,
}

impl Ports {
    fn free() -> Self {
        Self { http: free_port(), server: free_port(), gossip: free_port() }
    }
}

/// A server that keeps its data over a restart, in a directory of its own.
#[derive(Debug)]
pub struct Consul {
    process: Process,
    ports: Ports,
    directory: TempDir,
    arguments: Vec<OsString>,
    /// What we show to be let in.
    token: Option<String>,
}

impl Consul {
    /// A server that leads itself.
    ///
    /// # Panics
    /// When there is no `consul`, or it does not come to lead.
    pub fn start() -> Self {
        Self::with("")
    }

    /// The same with more settings, in the language of its configuration.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn with(settings: &str) -> Self {
        let server = Self::launch(Ports::free(), "n1", &["-bootstrap-expect=1"], settings);
        server.wait();
        server
    }

    /// A server that also speaks TLS, on the port that is answered beside it, and there wants a certificate of its clients.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn with_tls(certificates: &Certificates) -> (Self, u16) {
        let port = free_port();
        let settings = format!(
            "ports {{ https = {port} }}\nverify_incoming_https = true\nca_file = {:?}\ncert_file = {:?}\nkey_file = {:?}",
            certificates.certificate("ca"),
            certificates.certificate("server"),
            certificates.key("server"),
        );
        (Self::with(&settings), port)
    }

    /// A server that lets nobody do anything without a token; `master`, which is a UUID, may do everything.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn with_tokens(master: &str) -> Self {
        let settings = format!(
            r#"acl {{
                 enabled = true
                 default_policy = "deny"
                 tokens {{ master = "{master}" agent = "{master}" }}
               }}"#
        );
        let mut server = Self::launch(Ports::free(), "n1", &["-bootstrap-expect=1"], &settings);
        server.token = Some(master.to_owned());
        server.wait();
        server
    }

    fn launch(ports: Ports, name: &str, more: &[&str], settings: &str) -> Self {
        // Writes go to disk before they are answered: where there is a disk in memory, tests need no other.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let directory = directory.expect("a temporary directory can be made");
        // What the second file says counts.
        let files = [("settings.hcl", SETTINGS), ("more.hcl", settings)].map(|(name, text)| {
            let file = directory.path().join(name);
            std::fs::write(&file, text).expect("the directory takes files");
            format!("-config-file={}", file.display()).into()
        });
        let mut arguments: Vec<OsString> = ["agent", "-server", "-bind=127.0.0.1", "-client=127.0.0.1"]
            .into_iter()
            .chain(["-dns-port=-1", "-grpc-port=-1", "-serf-wan-port=-1", "-disable-host-node-id"])
            .chain(more.iter().copied())
            .map(OsString::from)
            .collect();
        arguments.extend([
            format!("-http-port={}", ports.http).into(),
            format!("-server-port={}", ports.server).into(),
            format!("-serf-lan-port={}", ports.gossip).into(),
            format!("-node={name}").into(),
            format!("-log-file={}/", directory.path().display()).into(),
            "-log-level=warn".into(),
            format!("-data-dir={}", directory.path().join("data").display()).into(),
        ]);
        arguments.extend::<[OsString; 2]>(files);
        let process = Process::start(program(), &arguments);
        Self { process, ports, directory, arguments, token: None }
    }

    /// Its HTTP port on loopback.
    pub fn port(&self) -> u16 {
        self.ports.http
    }

    /// Its URL, with the shortest lease that it takes.
    pub fn url(&self) -> String {
        format!("consul://127.0.0.1:{}?min_lease=1s", self.ports.http)
    }

    /// Its process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills it with -9 and starts it again with its data.
    pub fn restart(&mut self) {
        self.process.kill();
        self.start_again();
        self.wait();
    }

    /// Starts it again after it was killed or stopped, without waiting for a leader.
    pub fn start_again(&mut self) {
        self.process = Process::start(program(), &self.arguments);
    }

    /// What it answers to a request: the status and the body; status 0 when it does not.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.ask_as(self.token.as_deref().unwrap_or_default(), method, path, body)
    }

    /// The same with another token; an empty one is none.
    pub fn ask_as(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let header = if token.is_empty() { String::new() } else { format!("X-Consul-Token: {token}\r\n") };
        ask(self.ports.http, &header, method, path, body).unwrap_or_default()
    }

    /// Whether it knows a leader that takes writes.
    pub fn is_ready(&self) -> bool {
        // A session needs a leader, and the server's own node in the catalogue.
        let (status, made) = self.ask("PUT", "/v1/session/create", r#"{"TTL":"60s","NodeChecks":[]}"#);
        if status == 200 {
            let id = made.split('"').nth(3).unwrap_or_default();
            self.ask("PUT", &format!("/v1/session/destroy/{id}"), "");
        }
        status == 200
    }

    fn wait(&self) {
        wait_until("consul has a leader", START, || self.is_ready());
    }
}

fn program() -> PathBuf {
    fetched::find("consul").unwrap_or_else(|missing| panic!("{missing}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_started_again_has_its_port_and_its_data() {
        let mut server = Consul::start();
        assert_eq!(server.ask("PUT", "/v1/kv/key", "value").0, 200);
        server.restart();
        assert_eq!(server.ask("GET", "/v1/kv/key?raw", ""), (200, "value".to_owned()));
    }
}
