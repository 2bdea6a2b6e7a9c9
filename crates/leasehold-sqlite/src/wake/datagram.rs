//! Datagrams between the processes of this machine.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::{OnceLock, Weak};

use leasehold_core::{Inbox, Key, Wake};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::place::device_and_inode;

/// Sends, and knows what addresses on this file look like.
#[derive(Debug, Default)]
pub(super) struct Post {
    /// The file by device and inode: every path to it leads to the same addresses.
    file: OnceLock<(u64, u64)>,
    socket: OnceLock<Option<UnixDatagram>>,
}

/// A task that listens; it ends with this.
#[derive(Debug)]
pub(super) struct Listener(Option<AbortHandle>);

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Post {
    pub(super) fn set_file(&self, file: &Path) {
        if let Some(file) = device_and_inode(file) {
            self.file.get_or_init(|| file);
        }
    }

    /// Starts to listen, on the runtime of the caller.
    pub(super) fn listen(&self, inbox: Inbox, wakes: Weak<dyn Wake>) -> Listener {
        let socket = self.address(inbox).and_then(|address| {
            let bound = UnixDatagram::bind_addr(&address).and_then(|socket| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            bound
                .inspect_err(|error| tracing::warn!(%error, "no address for wake-ups: waiters only poll"))
                .ok()
        });
        let (Some(socket), Ok(runtime)) = (socket, Handle::try_current()) else { return Listener(None) };
        Listener(Some(runtime.spawn(listen(socket, wakes)).abort_handle()))
    }

    /// Asks a client to look at a key. When its queue is full or it is gone, it polls or needs nothing.
    pub(super) fn send(&self, inbox: Inbox, key: &Key) {
        let socket = self.socket.get_or_init(|| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        });
        let (Some(socket), Some(address)) = (socket, self.address(inbox)) else { return };
        if let Err(error) = socket.send_to_addr(key.as_str().as_bytes(), &address) {
            tracing::debug!(%error, %key, "a waiter could not be told");
        }
    }

    fn address(&self, inbox: Inbox) -> Option<SocketAddr> {
        let (device, inode) = self.file.get()?;
        SocketAddr::from_abstract_name(format!("leasehold/{device:x}:{inode:x}/{:016x}", inbox.0)).ok()
    }
}

async fn listen(socket: UnixDatagram, wakes: Weak<dyn Wake>) {
    let Ok(socket) = tokio::net::UnixDatagram::from_std(socket) else { return };
    let mut buffer = [0; Key::MAX + 1];
    while let Ok(length) = socket.recv(&mut buffer).await {
        let Some(wakes) = wakes.upgrade().filter(|wakes| !wakes.is_gone()) else { return };
        // Whatever anybody may have sent: only a name that could be a key is looked at.
        if let Some(Ok(key)) = std::str::from_utf8(&buffer[..length]).ok().map(Key::new) {
            wakes.look(&key);
        }
    }
}
