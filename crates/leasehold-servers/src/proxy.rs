//! A TCP proxy that breaks connections on purpose.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// What clients send on the connections that are open now is held; new connections pass. A client that gives up and
    /// connects again so has requests that arrive long after their repeats.
    Stall,
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
    /// How many connections there have been.
    accepted: AtomicU64,
    /// How many of them [`Mode::Stall`] holds: the first ones.
    stalled: AtomicU64,
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
        let (accepted, stalled, stopped) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { target, mode, open, accepted, stalled, stopped });
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
        let mut now = self.shared.mode();
        self.shared.stalled.store(self.shared.accepted.load(Ordering::Acquire), Ordering::Release);
        *now = mode;
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
        let number = shared.accepted.fetch_add(1, Ordering::AcqRel);
        thread::spawn(move || {
            let pass = |_: &TcpStream, to: &TcpStream, bytes: &[u8]| pass_up(&up, number, to, bytes);
            pump_until(&asks.0, &asks.1, pass, || hold(&up));
        });
        thread::spawn(move || {
            pump_until(
                &hears.0,
                &hears.1,
                |from, to, bytes| pass_down(&down, from, to, bytes),
                || hold(&down),
            );
        });
    }
}

pub(crate) type Passed = std::io::Result<()>;

/// Hands on what comes, until one side is done.
pub(crate) fn pump(from: &TcpStream, to: &TcpStream, pass: impl Fn(&TcpStream, &TcpStream, &[u8]) -> Passed) {
    pump_until(from, to, pass, || ());
}

/// The same, and waits before it tells the one side that the other is done.
fn pump_until(
    mut from: &TcpStream,
    to: &TcpStream,
    pass: impl Fn(&TcpStream, &TcpStream, &[u8]) -> Passed,
    wait: impl FnOnce(),
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
    wait();
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn pass_up(shared: &Shared, number: u64, mut to: &TcpStream, bytes: &[u8]) -> Passed {
    hold(shared);
    let mut was_stalled = false;
    while *shared.mode() == Mode::Stall && number < shared.stalled.load(Ordering::Acquire) {
        was_stalled = true;
        if shared.stopped.load(Ordering::Acquire) {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    to.write_all(bytes)?;
    if was_stalled {
        // The client may have gone. The server would drop the request with the connection.
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
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
        Mode::Pass | Mode::Hold | Mode::Stall | Mode::Refuse => to.write_all(bytes),
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
    fn a_stalled_request_arrives_although_its_client_has_gone() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::to(listener.local_addr().unwrap().port());
        let mut early = client(&proxy);
        let (mut heard, mut first) = ([0; 8], listener.accept().unwrap().0);
        early.write_all(b"1").unwrap();
        first.read_exact(&mut heard[..1]).unwrap();
        proxy.set(Mode::Stall);
        early.write_all(b"2").unwrap();
        drop(early);
        client(&proxy).write_all(b"3").unwrap();
        listener.accept().unwrap().0.read_exact(&mut heard[..1]).unwrap();
        assert_eq!(&heard[..1], b"3", "new connections pass");
        first.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(first.read(&mut heard).is_err(), "still held");
        proxy.set(Mode::Pass);
        first.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        first.read_exact(&mut heard[..1]).unwrap();
        assert_eq!(&heard[..1], b"2");
    }

    #[test]
    fn nothing_is_closed_while_everything_is_held() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::to(listener.local_addr().unwrap().port());
        let mut client = client(&proxy);
        let (server, _) = listener.accept().unwrap();
        proxy.set(Mode::Hold);
        drop(server);
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(client.read(&mut [0; 8]).is_err(), "the client hears that the server has closed");
        proxy.set(Mode::Pass);
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
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
