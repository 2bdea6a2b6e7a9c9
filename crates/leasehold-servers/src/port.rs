//! Ports that nobody else uses, from the question until the server has bound them.
//!
//! Asking the kernel for a port and giving it back is not enough: a server takes a second to start, and meanwhile the kernel
//! gives the same port to whoever asks, or connects. A test then talks to somebody else's server.

use std::fs::{File, OpenOptions, create_dir_all};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Below those that the kernel gives to whoever connects.
const PORTS: Range<u16> = 10_000..32_000;

/// What keeps other processes of ours from the ports of this one, for as long as it lives.
static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port of the loopback that nobody uses now, and that no process with this function gets until this one ends.
///
/// # Panics
/// When there is none to be found.
pub fn free_port() -> u16 {
    let folder = folder();
    for _ in 0..10_000 {
        let number = RandomState::new().build_hasher().finish() % u64::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(number).expect("it is below the number of ports");
        let file = OpenOptions::new().create(true).append(true).open(folder.join(port.to_string()));
        let file = file.expect("a file in the temporary directory");
        if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(file);
            return port;
        }
    }
    panic!("no port between {} and {} is free", PORTS.start, PORTS.end);
}

/// Where the locks are: of this user, whose files others could not open.
fn folder() -> PathBuf {
    let user = std::fs::metadata("/proc/self").map_or(0, |me| me.uid());
    let folder = std::env::temp_dir().join(format!("leasehold-ports-{user}"));
    create_dir_all(&folder).expect("a folder in the temporary directory");
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_out_twice() {
        let ports: Vec<u16> = (0..500).map(|_| free_port()).collect();
        let distinct: std::collections::BTreeSet<&u16> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
    }
}
