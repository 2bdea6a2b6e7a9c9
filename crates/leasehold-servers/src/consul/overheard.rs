//! A way to a server on which somebody listens: what was asked, and what was said.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::proxy::pump;

#[derive(Debug, Default)]
struct Heard {
    /// The first line of every request, without the protocol.
    asked: Mutex<Vec<String>>,
    said: Mutex<Vec<u8>>,
    /// The next request whose first line contains this is answered with 404 and never reaches the server.
    denied: Mutex<Option<String>>,
    stopped: AtomicBool,
}

/// What a server says that has no such key.
const NOTHING: &[u8] = b"HTTP/1.1 404 Not Found\r\nX-Consul-Index: 1\r\nContent-Length: 0\r\n\r\n";

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A proxy that remembers everything and changes nothing, unless it is told to deny that something is there.
#[derive(Debug)]
pub struct Overheard {
    port: u16,
    heard: Arc<Heard>,
}

impl Overheard {
    /// A way to the server on this port of loopback.
    ///
    /// # Panics
    /// When loopback has no port left.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let heard: Arc<Heard> = Arc::default();
        let listening = heard.clone();
        thread::spawn(move || accept(&listener, target, &listening));
        Self { port, heard }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The requests since this was last asked, as `PUT /v1/txn?`.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.heard.asked))
    }

    /// Answers the next request whose path contains this as a server would that has not applied its log yet: there is
    /// no such key.
    pub fn deny_next(&self, path: &str) {
        *locked(&self.heard.denied) = Some(path.to_owned());
    }

    /// Whether that request has come.
    pub fn has_denied(&self) -> bool {
        locked(&self.heard.denied).is_none()
    }

    /// All answers since this was last asked.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *locked(&self.heard.said))).into_owned()
    }
}

impl Drop for Overheard {
    fn drop(&mut self) {
        self.heard.stopped.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn accept(listener: &TcpListener, target: u16, heard: &Arc<Heard>) {
    for client in listener.incoming() {
        if heard.stopped.load(Ordering::Acquire) {
            return;
        }
        let Ok(client) = client else { continue };
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (client, server) = (Arc::new(client), Arc::new(server));
        let (asks, answers) = ((client.clone(), server.clone()), (server, client));
        let (up, down) = (heard.clone(), heard.clone());
        thread::spawn(move || {
            pump(&asks.0, &asks.1, |mut from, mut to, bytes| {
                // A head is written at once, and none is longer than what is read at once.
                let lines = String::from_utf8_lossy(bytes);
                let first = lines.lines().filter_map(|line| line.strip_suffix(" HTTP/1.1"));
                let first: Vec<String> = first.map(str::to_owned).collect();
                let is_denied = |path: &mut String| first.iter().any(|line| line.contains(&*path));
                let denied = locked(&up.denied).take_if(is_denied);
                locked(&up.asked).extend(first);
                match denied {
                    Some(_) => from.write_all(NOTHING),
                    None => to.write_all(bytes),
                }
            });
        });
        thread::spawn(move || {
            pump(&answers.0, &answers.1, |_, mut to, bytes| {
                locked(&down.said).extend_from_slice(bytes);
                to.write_all(bytes)
            });
        });
    }
}
