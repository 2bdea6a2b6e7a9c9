//! ZooKeeper servers: single, and ensembles whose members can be cut from each other.

mod ensemble;

pub use ensemble::Ensemble;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::port::free_port;
use crate::process::Process;

/// How long a server may take until it answers: a virtual machine starts, on a machine that is busy.
const START: Duration = Duration::from_secs(60);

/// The classes of the server, where Debian's package puts them, and two that its TLS needs and the package forgot.
const CLASSES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar:\
                       /usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// The server's clock: sessions last two of it or more, and end within one.
pub const TICK: Duration = Duration::from_millis(200);

/// One server, in a directory of its own.
#[derive(Debug)]
pub struct ZooKeeper {
    process: Process,
    port: u16,
    directory: TempDir,
    options: Vec<String>,
}

impl ZooKeeper {
    /// A single server that answers.
    pub fn start() -> Self {
        Self::with(&[], &[])
    }

    /// A single server with more lines in its configuration, like `maxSessionTimeout=4000`, and more options of the
    /// virtual machine.
    ///
    /// # Panics
    /// When there is no ZooKeeper, or it does not answer.
    pub fn with(lines: &[&str], options: &[&str]) -> Self {
        let mut server = Self::member(free_port(), None, lines, options);
        server.wait();
        server
    }

    /// A server that may need others before it answers.
    fn member(port: u16, id: Option<usize>, lines: &[&str], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let data = directory.path().join("data");
        std::fs::create_dir(&data).expect("it is new");
        if let Some(id) = id {
            std::fs::write(data.join("myid"), id.to_string()).expect("the directory is ours");
        }
        let mut text = format!(
            "tickTime={}\nmaxSessionTimeout=700000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n",
            TICK.as_millis(),
            data.display()
        );
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
        std::fs::write(directory.path().join("zoo.cfg"), text).expect("the directory is ours");
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let process = run(directory.path(), &options);
        Self { process, port, directory, options }
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}", self.port)
    }

    /// Its process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills it with -9 and starts it again on the same port. It has kept what it had.
    pub fn restart(&mut self) {
        self.process.kill();
        self.start_again();
    }

    /// Starts it again on the same port after it was killed or stopped.
    pub fn start_again(&mut self) {
        self.process = run(self.directory.path(), &self.options);
        self.wait();
    }

    /// Its part: `standalone`, `leader` or `follower`; nothing while it does not serve.
    pub fn part(&self) -> Option<String> {
        let said = self.ask("srvr");
        said.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// What it answers to one of its four-letter words; nothing when it does not.
    pub fn ask(&self, word: &str) -> String {
        let limit = Duration::from_secs(2);
        let mut said = String::new();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        if let Ok(mut stream) = TcpStream::connect_timeout(&address, limit) {
            let _ = stream.set_read_timeout(Some(limit));
            let _ = stream.write_all(word.as_bytes()).and_then(|()| stream.read_to_string(&mut said));
        }
        said
    }

    fn wait(&mut self) {
        let end = std::time::Instant::now() + START;
        while self.part().is_none() {
            assert!(self.process.is_running(), "zookeeper ended; `cargo xtask test` installs it");
            assert!(std::time::Instant::now() < end, "zookeeper does not answer within {START:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn run(directory: &Path, options: &[String]) -> Process {
    let mut words: Vec<OsString> = [
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        // Tests do not cut the power: no waiting for disks.
        "-Dzookeeper.forceSync=no",
        "-Dznode.container.checkIntervalMs=1000",
    ]
    .map(OsString::from)
    .to_vec();
    words.extend(options.iter().map(OsString::from));
    words.extend(["-cp", CLASSES, "org.apache.zookeeper.server.quorum.QuorumPeerMain"].map(OsString::from));
    words.push(directory.join("zoo.cfg").into());
    Process::start("java", &words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::wait_until;

    #[test]
    fn a_server_that_is_started_again_has_its_port() {
        let mut server = ZooKeeper::start();
        assert_eq!(server.part().as_deref(), Some("standalone"));
        server.restart();
        assert_eq!(server.part().as_deref(), Some("standalone"));
    }

    #[test]
    fn an_ensemble_has_one_leader_and_another_when_that_is_killed() {
        let mut ensemble = Ensemble::start();
        let leader = ensemble.leader();
        ensemble.server(leader).process().kill();
        wait_until("another leads", START, || {
            ensemble
                .parts()
                .iter()
                .enumerate()
                .any(|(n, part)| n != leader && part.as_deref() == Some("leader"))
        });
    }
}
