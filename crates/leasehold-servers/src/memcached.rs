//! memcached servers.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::port::free_port;
use crate::process::{Process, wait_until};

/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(20);

/// A server, which keeps nothing when it ends.
#[derive(Debug)]
pub struct Memcached {
    process: Process,
    port: u16,
    settings: Vec<OsString>,
}

impl Memcached {
    /// A server that answers.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with more settings, like `["-m", "1"]`.
    ///
    /// # Panics
    /// When there is no `memcached`, or it does not answer.
    pub fn with(settings: &[&str]) -> Self {
        let port = free_port();
        let settings: Vec<OsString> = settings.iter().map(OsString::from).collect();
        let server = Self { process: run(port, &settings), port, settings };
        server.wait();
        server
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("memcached://127.0.0.1:{}", self.port)
    }

    /// Its process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it with -9 and starts it again, empty, on the same port.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = run(self.port, &self.settings);
        self.wait();
    }

    /// Sends a command of one answer and reads that up to the line that starts with `end`; the lines before it.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn ask(&self, command: &str, end: &str) -> Vec<String> {
        self.try_ask(command, end).expect("the server answers")
    }

    fn try_ask(&self, command: &str, end: &str) -> std::io::Result<Vec<String>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(START))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut lines = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line = line?;
            if line.starts_with(end) {
                return Ok(lines);
            }
            lines.push(line);
        }
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }

    fn wait(&self) {
        wait_until("memcached answers", START, || self.try_ask("version", "VERSION").is_ok());
    }
}

fn run(port: u16, settings: &[OsString]) -> Process {
    // It does not run as root, and needs no right of anybody.
    let mut words: Vec<OsString> =
        ["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-m", "64", "-t", "1", "-p"]
            .map(OsString::from)
            .into();
    words.push(port.to_string().into());
    words.extend_from_slice(settings);
    Process::start("memcached", &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_server_is_empty() {
        let mut server = Memcached::start();
        server.ask("set a 0 0 1\r\nx", "STORED");
        assert_eq!(server.ask("get a", "END").len(), 2);
        server.restart();
        assert!(server.ask("get a", "END").is_empty());
    }
}
