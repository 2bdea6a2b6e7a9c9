//! What stands between the members of a cluster: proxies that know which member a connection comes from.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a held connection looks whether it may go on.
const GLANCE: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
struct State {
    /// The members' processes.
    processes: Vec<u32>,
    cut: Option<usize>,
    stopped: bool,
}

/// One proxy for each member.
#[derive(Debug)]
pub(super) struct Peers {
    ports: Vec<u16>,
    state: Arc<Mutex<State>>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers {
    /// Proxies to members that listen on these ports.
    pub(super) fn to(targets: &[u16]) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let ports = targets.iter().enumerate().map(|(at, target)| listen(at, *target, &state)).collect();
        Self { ports, state }
    }

    pub(super) fn ports(&self) -> Vec<u16> {
        self.ports.clone()
    }

    /// The members are these processes now.
    pub(super) fn are(&self, processes: Vec<u32>) {
        locked(&self.state).processes = processes;
    }

    pub(super) fn cut(&self, at: usize) {
        locked(&self.state).cut = Some(at);
    }

    pub(super) fn heal(&self) {
        locked(&self.state).cut = None;
    }

    pub(super) fn is_cut(&self, at: usize) -> bool {
        locked(&self.state).cut == Some(at)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        locked(&self.state).stopped = true;
        // Wakes those who accept.
        self.ports.iter().for_each(|port| drop(TcpStream::connect((Ipv4Addr::LOCALHOST, *port))));
    }
}

fn listen(to: usize, target: u16, state: &Arc<Mutex<State>>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let state = state.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if locked(&state).stopped {
                return;
            }
            let state = state.clone();
            thread::spawn(move || connect(stream, to, target, &state));
        }
    });
    port
}

fn connect(stream: TcpStream, to: usize, target: u16, state: &Arc<Mutex<State>>) {
    let Ok(SocketAddr::V4(address)) = stream.peer_addr() else { return };
    let from = owner(address.port(), &locked(state).processes.clone());
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { return };
    let (Ok(back), Ok(forth)) = (stream.try_clone(), server.try_clone()) else { return };
    let other = state.clone();
    thread::spawn(move || copy(forth, back, from, to, &other));
    copy(stream, server, from, to, state);
}

/// Passes on what comes, unless one of the two members is cut off: then it waits, and nothing is closed.
fn copy(mut source: TcpStream, mut sink: TcpStream, from: Option<usize>, to: usize, state: &Mutex<State>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = source.read(&mut buffer) {
        while is_held(state, from, to) {
            thread::sleep(GLANCE);
        }
        if locked(state).stopped {
            return;
        }
        if sink.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = (source.shutdown(Shutdown::Both), sink.shutdown(Shutdown::Both));
}

fn is_held(state: &Mutex<State>, from: Option<usize>, to: usize) -> bool {
    let state = locked(state);
    !state.stopped && state.cut.is_some_and(|cut| cut == to || Some(cut) == from)
}

/// Which of these processes has the connection that starts at this port of loopback.
fn owner(port: u16, processes: &[u32]) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let local = format!("0100007F:{port:04X}");
    let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(&local))?;
    let socket = format!("socket:[{}]", line.split_whitespace().nth(9)?);
    let has_it = |pid: &u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|link| link.as_os_str() == socket.as_str())
    };
    processes.iter().position(has_it)
}
