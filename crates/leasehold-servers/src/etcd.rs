//! etcd servers: single ones, with users or TLS, and clusters of three whose members can be cut off from each other.

mod cluster;

pub use cluster::Cluster;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::http::ask;
use crate::port::free_port;
use crate::power::PowerDisk;
use crate::process::{Process, wait_until};
use crate::redis::Certificates;

/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(30);

/// The size of a disk whose power can be cut: a log of etcd takes 64 MB from the start, and the next one is made ahead.
const MEGABYTES: u32 = 300;

/// No waiting for the disk, and little memory: what is to be survived here is the death of processes, not of machines.
const SETTINGS: &[&str] =
    &["--unsafe-no-fsync", "--quota-backend-bytes=268435456", "--logger=zap", "--log-level=error"];

/// With whom it elects a leader. The shortest lease is one and a half times the time of an election, in whole seconds.
const ALONE: &[&str] = &["--heartbeat-interval=50", "--election-timeout=500"];
const TOGETHER: &[&str] = &["--heartbeat-interval=100", "--election-timeout=1000"];

/// One server, in a directory of its own.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    port: u16,
    directory: TempDir,
    disk: Option<PowerDisk>,
    arguments: Vec<OsString>,
    /// How `etcdctl` must be called to be let in.
    access: Vec<String>,
}

impl Etcd {
    /// A server that answers.
    ///
    /// # Panics
    /// When there is no `etcd`, or it does not answer.
    pub fn start() -> Self {
        let (client, peer) = (free_port(), free_port());
        let cluster = format!("one=http://127.0.0.1:{peer}");
        Self::member("one", client, peer, peer, &cluster, ALONE).answering()
    }

    /// A server that speaks TLS only, and wants a certificate of its clients.
    pub fn with_tls(certificates: &Certificates) -> Self {
        let mut server = Self::start();
        server.process.kill();
        let url = format!("https://127.0.0.1:{}", server.port);
        let file = |path: PathBuf| path.display().to_string();
        for (option, value) in [
            // Said again, which counts.
            ("--listen-client-urls", url.clone()),
            ("--advertise-client-urls", url),
            ("--cert-file", file(certificates.certificate("server"))),
            ("--key-file", file(certificates.key("server"))),
            ("--trusted-ca-file", file(certificates.certificate("ca"))),
        ] {
            server.arguments.extend([option.into(), value.into()]);
        }
        server.arguments.push("--client-cert-auth".into());
        server.access = vec![
            format!("--cacert={}", file(certificates.certificate("ca"))),
            format!("--cert={}", file(certificates.certificate("client"))),
            format!("--key={}", file(certificates.key("client"))),
        ];
        server.start_again();
        server.answering()
    }

    /// A server on a disk whose power can be cut: see [`cut_power`](Self::cut_power). Its own settings say whether it syncs,
    /// as `["--unsafe-no-fsync=false"]`.
    ///
    /// # Errors
    /// Why this machine has no such disk, for the list of ignored tests.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn on_a_power_disk(settings: &[&str]) -> Result<Self, String> {
        let disk = PowerDisk::of(MEGABYTES)?;
        let mut server = Self::start();
        server.process.kill();
        // Said again, which counts.
        server.arguments.extend(["--data-dir".into(), disk.path().join("data").into()]);
        server.arguments.extend(settings.iter().map(OsString::from));
        server.disk = Some(disk);
        server.start_again();
        Ok(server.answering())
    }

    /// Syncs what it has written, for a server that does not sync by itself.
    ///
    /// # Panics
    /// When it is not on a disk whose power can be cut.
    pub fn sync(&self) {
        self.power().sync();
    }

    /// Cuts its power, and starts it again with what was synced, on the same port.
    ///
    /// # Panics
    /// When it is not on such a disk, or does not start.
    pub fn cut_power(&mut self) {
        self.power().cut();
        self.process.kill();
        self.power().restore();
        self.start_again();
        self.wait();
    }

    fn power(&self) -> &PowerDisk {
        self.disk.as_ref().expect("start it on a disk whose power can be cut")
    }

    /// A server with users: `root`, and `locks` who may do what he likes below `leasehold/`, both with this password.
    pub fn with_users(password: &str) -> Self {
        let mut server = Self::start();
        for user in ["root", "locks"] {
            server.ctl(&["user", "add", &format!("{user}:{password}")]);
            server.ctl(&["role", "add", user]);
            server.ctl(&["user", "grant-role", user, user]);
        }
        server.ctl(&["role", "grant-permission", "locks", "--prefix=true", "readwrite", "leasehold/"]);
        server.ctl(&["auth", "enable"]);
        server.access = vec![format!("--user=root:{password}")];
        server
    }

    /// A member of a cluster, which may have to wait for the others before it answers.
    fn member(name: &str, client: u16, peer: u16, known_as: u16, cluster: &str, elections: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut arguments: Vec<OsString> = SETTINGS.iter().chain(elections).map(OsString::from).collect();
        arguments.push("--data-dir".into());
        arguments.push(directory.path().join("data").into());
        for (option, value) in [
            ("--name", name.to_owned()),
            ("--listen-client-urls", url(client)),
            ("--advertise-client-urls", url(client)),
            ("--listen-peer-urls", url(peer)),
            ("--initial-advertise-peer-urls", url(known_as)),
            ("--initial-cluster", cluster.to_owned()),
            ("--log-outputs", directory.path().join("log").display().to_string()),
        ] {
            arguments.extend([option.into(), value.into()]);
        }
        let process = run(None, &arguments);
        Self { process, port: client, directory, disk: None, arguments, access: Vec::new() }
    }

    /// Waits until it answers.
    fn answering(mut self) -> Self {
        self.wait();
        self
    }

    fn wait(&mut self) {
        let (port, access, process, directory) =
            (self.port, &self.access, &mut self.process, self.directory.path());
        wait_until("etcd answers", START, || {
            assert!(process.is_running(), "etcd ended: {}", log(directory));
            ctl(port, access, PROBE, &["get", "probe"]).is_ok()
        });
    }

    /// Whether it thinks that it leads.
    fn leads(&self) -> bool {
        self.try_ctl(&["endpoint", "status"]).is_ok_and(|said| said.split(", ").nth(4) == Some("true"))
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    /// Its process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it with -9 and starts it again. What it has written is still there.
    pub fn restart(&mut self) {
        self.process.kill();
        self.start_again();
        self.wait();
    }

    /// Starts it again after it was killed or stopped, and does not wait until it answers.
    pub fn start_again(&mut self) {
        self.process = run(self.disk.as_ref(), &self.arguments);
    }

    /// What it answers to a request of its JSON gateway: much quicker than `etcdctl`, for whoever looks often. `None` when
    /// it does not know, or does not answer.
    pub fn ask(&self, path: &str, body: &str) -> Option<String> {
        let (status, said) = ask(self.port, "", "POST", path, body).ok()?;
        (status == 200).then_some(said)
    }

    /// What `etcdctl` answers.
    ///
    /// # Panics
    /// When there is no `etcdctl`, or it fails.
    pub fn ctl(&self, words: &[&str]) -> String {
        let said = ctl(self.port, &self.access, COMMAND, words);
        said.unwrap_or_else(|error| panic!("etcdctl {words:?}: {error}"))
    }

    /// The same, or what it complains about.
    ///
    /// # Errors
    /// What `etcdctl` wrote when it failed.
    pub fn try_ctl(&self, words: &[&str]) -> Result<String, String> {
        ctl(self.port, &self.access, PROBE, words)
    }
}

fn run(disk: Option<&PowerDisk>, arguments: &[OsString]) -> Process {
    assert!(
        Command::new(program()).arg("--version").output().is_ok(),
        "etcd is missing: `cargo xtask test` installs it"
    );
    let mut words = disk.map(PowerDisk::words).unwrap_or_default();
    words.push(program());
    words.extend_from_slice(arguments);
    let first = words.remove(0);
    Process::start(first, &words)
}

/// The server that is tested: `LEASEHOLD_ETCD` can name another one.
fn program() -> OsString {
    std::env::var_os("LEASEHOLD_ETCD").unwrap_or_else(|| "etcd".into())
}

/// How long `etcdctl` may take to find out whether a server answers, and to do what must be done on a busy machine.
const PROBE: &str = "3s";
const COMMAND: &str = "30s";

fn ctl(port: u16, access: &[String], limit: &str, words: &[&str]) -> Result<String, String> {
    let endpoint = format!("--endpoints=127.0.0.1:{port}");
    let mut etcdctl = Command::new("etcdctl");
    etcdctl
        .env("ETCDCTL_API", "3")
        .args([&endpoint, "--dial-timeout=1s", &format!("--command-timeout={limit}")])
        .args(access)
        .args(words);
    let said = etcdctl.output().expect("etcdctl is there: `cargo xtask test` installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
}

fn log(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("log")).unwrap_or_default()
}
