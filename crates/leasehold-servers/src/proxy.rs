//! A TCP proxy that breaks connections on purpose.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// What happens to what the server says. Requests always reach it, except in [`Mode::Hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// Replies are this late.
    Delay(Duration),
    /// Replies are thrown away.
    DropReplies,
    /// Nothing passes in either direction, and nothing is closed.
    Hold,
    /// The connection ends after this many bytes of the next reply; then everything passes.
    CutReplyAfter(usize),
    /// The next reply is replaced by something that is none; then everything passes.
    Garbage,
    /// New connections are closed at once.
    Refuse,
}

#[derive(Debug)]
struct Shared {
    target: u16,
    mode: Mutex<Mode>,
    /// To end them; a connection that is over is not kept.
    open: Mutex<Vec<Weak<TcpStream>>>,
    stopped: AtomicBool,
}

impl Shared {
    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, Vec<Weak<TcpStream>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A proxy between a client and the server on a port of loopback.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy that passes everything on to `target`.
    ///
    /// # Panics
    /// When loopback has no port left.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (mode, open) = (Mutex::new(Mode::Pass), Mutex::default());
        let shared = Arc::new(Shared { target, mode, open, stopped: AtomicBool::new(false) });
        let accepting = shared.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Self { port, shared }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes what happens from now on, on open connections too.
    pub fn set(&self, mode: Mode) {
        *self.shared.mode() = mode;
    }

    /// What happens now: `Pass` again after a mode that acts once has acted.
    pub fn mode(&self) -> Mode {
        *self.shared.mode()
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in self.shared.open().drain(..).filter_map(|stream| stream.upgrade()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.stopped.load(Ordering::Acquire) {
            return;
        }
        let Ok(client) = client else { continue };
        if *shared.mode() == Mode::Refuse {
            continue;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.target)) else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (client, server) = (Arc::new(client), Arc::new(server));
        let mut open = shared.open();
        open.retain(|stream| stream.strong_count() > 0);
        open.extend([&client, &server].map(Arc::downgrade));
        drop(open);
        let (up, down) = (shared.clone(), shared.clone());
        let (asks, hears) = ((client.clone(), server.clone()), (server, client));
        thread::spawn(move || pump(&asks.0, &asks.1, |_, to, bytes| pass_up(&up, to, bytes)));
        thread::spawn(move || pump(&hears.0, &hears.1, |from, to, bytes| pass_down(&down, from, to, bytes)));
    }
}

pub(crate) type Passed = std::io::Result<()>;

/// Hands on what comes, until one side is done.
pub(crate) fn pump(
    mut from: &TcpStream,
    to: &TcpStream,
    pass: impl Fn(&TcpStream, &TcpStream, &[u8]) -> Passed,
) {
    let mut buffer = [0; 16 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(n) => {
                if pass(from, to, &buffer[..n]).is_err() {
                    break;
                }
            }
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn pass_up(shared: &Shared, mut to: &TcpStream, bytes: &[u8]) -> Passed {
    hold(shared);
    to.write_all(bytes)
}

fn pass_down(shared: &Shared, from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) -> Passed {
    hold(shared);
    let mode = {
        let mut mode = shared.mode();
        let now = *mode;
        if matches!(now, Mode::CutReplyAfter(_) | Mode::Garbage) {
            *mode = Mode::Pass;
        }
        now
    };
    match mode {
        Mode::DropReplies => Ok(()),
        Mode::Delay(delay) => {
            thread::sleep(delay);
            to.write_all(bytes)
        }
        Mode::CutReplyAfter(n) => {
            to.write_all(&bytes[..n.min(bytes.len())])?;
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
        Mode::Garbage => to.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        Mode::Pass | Mode::Hold | Mode::Refuse => to.write_all(bytes),
    }
}

fn hold(shared: &Shared) {
    while *shared.mode() == Mode::Hold && !shared.stopped.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says back what it hears.
    fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                thread::spawn(move || pump(&client, &client, |_, mut to, bytes| to.write_all(bytes)));
            }
        });
        port
    }

    fn client(proxy: &Proxy) -> TcpStream {
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        client
    }

    fn say(client: &mut TcpStream, words: &[u8]) -> Vec<u8> {
        client.write_all(words).unwrap();
        let mut heard = vec![0; 1024];
        let n = client.read(&mut heard).unwrap();
        heard.truncate(n);
        heard
    }

    #[test]
    fn what_passes_is_unchanged() {
        let proxy = Proxy::to(echo());
        assert_eq!(say(&mut client(&proxy), b"hello"), b"hello");
    }

    #[test]
    fn a_reply_is_cut_where_it_was_asked() {
        let proxy = Proxy::to(echo());
        let mut client = client(&proxy);
        proxy.set(Mode::CutReplyAfter(3));
        assert_eq!(say(&mut client, b"hello"), b"hel");
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(proxy.mode(), Mode::Pass);
    }

    #[test]
    fn a_cut_ends_every_connection() {
        let proxy = Proxy::to(echo());
        let mut client = client(&proxy);
        say(&mut client, b"hello");
        proxy.cut();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn what_is_held_passes_later() {
        let proxy = Proxy::to(echo());
        let mut client = client(&proxy);
        proxy.set(Mode::Hold);
        client.write_all(b"hello").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(client.read(&mut [0; 8]).is_err());
        proxy.set(Mode::Pass);
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 5);
    }
}
