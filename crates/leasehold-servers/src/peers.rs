//! What stands between the members of a cluster: proxies that know which member a connection comes from.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Another address of loopback.
pub(crate) const BESIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How often a held connection looks whether it may go on.
const GLANCE: Duration = Duration::from_millis(10);

/// How often it is looked who made a connection.
const TRIES: usize = 3;

#[derive(Debug, Default)]
struct State {
    /// The members' processes.
    processes: Vec<u32>,
    cut: Option<usize>,
    stopped: bool,
}

/// One proxy for each port of each member.
#[derive(Debug)]
pub(crate) struct Peers {
    addresses: Vec<SocketAddrV4>,
    state: Arc<Mutex<State>>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers {
    /// Proxies to members that listen on these ports, each on a port of its own.
    pub(crate) fn to(targets: &[u16]) -> Self {
        let free = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        Self::on(targets.iter().enumerate().map(|(at, target)| (at, free, *target)))
    }

    /// Proxies to members that listen on these ports, each on the same port of [`BESIDE`]: for servers that cannot tell
    /// others another port than the one they have.
    pub(crate) fn beside<const N: usize>(members: &[[u16; N]]) -> Self {
        let all = members.iter().enumerate().flat_map(|(at, ports)| ports.map(|port| (at, port)));
        Self::on(all.map(|(at, port)| (at, SocketAddrV4::new(BESIDE, port), port)))
    }

    fn on(all: impl Iterator<Item = (usize, SocketAddrV4, u16)>) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let addresses = all.map(|(at, address, target)| listen(at, address, target, &state)).collect();
        Self { addresses, state }
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.addresses.iter().map(SocketAddrV4::port).collect()
    }

    /// The members are these processes now.
    pub(crate) fn are(&self, processes: Vec<u32>) {
        locked(&self.state).processes = processes;
    }

    pub(crate) fn cut(&self, at: usize) {
        locked(&self.state).cut = Some(at);
    }

    pub(crate) fn heal(&self) {
        locked(&self.state).cut = None;
    }

    pub(crate) fn is_cut(&self, at: usize) -> bool {
        locked(&self.state).cut == Some(at)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        locked(&self.state).stopped = true;
        // Wakes those who accept.
        self.addresses.iter().for_each(|address| drop(TcpStream::connect(address)));
    }
}

fn listen(to: usize, address: SocketAddrV4, target: u16, state: &Arc<Mutex<State>>) -> SocketAddrV4 {
    let listener = TcpListener::bind(address).expect("loopback has the port");
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
    SocketAddrV4::new(*address.ip(), port)
}

fn connect(stream: TcpStream, to: usize, target: u16, state: &Arc<Mutex<State>>) {
    let (Ok(SocketAddr::V4(theirs)), Ok(SocketAddr::V4(ours))) = (stream.peer_addr(), stream.local_addr())
    else {
        return;
    };
    // They connect as soon as they run, and a moment later it is known who they are.
    while locked(state).processes.is_empty() && !locked(state).stopped {
        thread::sleep(GLANCE);
    }
    // A connection of an unknown member would pass a cut, so it is closed. Not many tries: the table is long where many
    // connections ended lately, and a member that has given up is never found.
    let known = (0..TRIES).take_while(|_| !locked(state).stopped).find_map(|_| {
        let processes = locked(state).processes.clone();
        let found = owner(theirs, ours, &processes);
        if found.is_none() {
            thread::sleep(GLANCE);
        }
        found
    });
    let Some(from) = known else { return };
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { return };
    let (Ok(back), Ok(forth)) = (stream.try_clone(), server.try_clone()) else { return };
    let other = state.clone();
    thread::spawn(move || copy(forth, back, from, to, &other));
    copy(stream, server, from, to, state);
}

/// Passes on what comes, unless one of the two members is cut off: then it waits, and nothing is closed.
fn copy(mut source: TcpStream, mut sink: TcpStream, from: usize, to: usize, state: &Mutex<State>) {
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

fn is_held(state: &Mutex<State>, from: usize, to: usize) -> bool {
    let state = locked(state);
    !state.stopped && state.cut.is_some_and(|cut| cut == to || cut == from)
}

/// Which of these processes has the connection between these addresses.
fn owner(theirs: SocketAddrV4, ours: SocketAddrV4, processes: &[u32]) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let socket = format!("socket:[{}]", inode(&table, theirs, ours)?);
    let has_it = |pid: &u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|link| link.as_os_str() == socket.as_str())
    };
    processes.iter().position(has_it)
}

/// The socket of the connection between these addresses, in the kernel's table. The local port alone does not tell it: a
/// port is used again for another address while the connection that had it before is still listed as ended.
fn inode(table: &str, local: SocketAddrV4, remote: SocketAddrV4) -> Option<&str> {
    let hex = |address: SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_le_bytes(address.ip().octets()), address.port())
    };
    let (local, remote) = (hex(local), hex(remote));
    table.lines().find_map(|line| {
        let mut parts = line.split_whitespace().skip(1);
        let is_it = parts.next() == Some(&local) && parts.next() == Some(&remote);
        if is_it { parts.nth(6) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel writes it: a connection from a port that ended, and one from the same port to another address.
    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
2139: 0100007F:99D8 0100007F:AC15 06 00000000:00000000 03:000014A8 00000000     0        0 0 3 000000009c88dff3
3264: 0100007F:99D8 0200007F:CBC5 01 00000000:00000000 00:00000000 00000000     0        0 426965 2 000000006d6bdc08
";

    #[test]
    fn ended_connection_from_the_same_port_is_not_mistaken_for_a_live_one() {
        let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0x99D8);
        assert_eq!(inode(TABLE, local, SocketAddrV4::new(BESIDE, 0xCBC5)), Some("426965"));
        assert_eq!(inode(TABLE, local, SocketAddrV4::new(BESIDE, 0xCBC6)), None);
    }
}
