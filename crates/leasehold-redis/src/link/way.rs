//! How a call gets to its server: on the connection that all share, or on the one whose writes are acknowledged.

use std::sync::Arc;

use leasehold_core::Result;
use redis::{Cmd, Value, cmd};
use tokio::time::Instant;

use super::node::Node;
use super::wire::Wire;
use super::writer::{Beat, Writer};
use crate::fault::Silence;
use crate::script::{Ack, Call};

/// A connection, and what waits for the replicas where somebody must.
#[derive(Debug)]
pub(super) struct Way {
    wire: Wire,
    writer: Option<Arc<Writer>>,
}

impl Way {
    /// The way to a server that is connected.
    pub(super) fn now(node: &Node, ack: Ack) -> Option<Self> {
        match ack {
            Ack::Free => Some(Self { wire: node.wire()?, writer: None }),
            Ack::Needed => {
                let writer = node.writer();
                Some(Self { wire: writer.node().wire()?, writer: Some(writer.clone()) })
            }
        }
    }

    /// The way to a server, as soon as it is connected.
    pub(super) async fn to(node: &Node, ack: Ack, until: Instant) -> Result<Self> {
        match ack {
            Ack::Free => Ok(Self { wire: node.connected(until).await?, writer: None }),
            Ack::Needed => {
                let writer = node.writer();
                Ok(Self { wire: writer.node().connected(until).await?, writer: Some(writer.clone()) })
            }
        }
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// See [`Wire::replication_id`].
    pub(super) fn replication_id(&self) -> Arc<str> {
        self.wire.replication_id()
    }

    /// See [`Wire::secret`].
    pub(super) fn secret(&self) -> Arc<str> {
        self.wire.secret()
    }

    /// Whether a command is sent as it is.
    pub(super) fn is_plain(&self) -> bool {
        self.writer.is_none()
    }

    /// Sends the command of a call; `asking` for a key whose slot is not this server's yet.
    pub(super) async fn send(
        &self,
        command: Cmd,
        call: &Call,
        asking: bool,
        until: Instant,
    ) -> Result<Value, Silence> {
        let mut commands = if asking { vec![cmd("ASKING")] } else { Vec::new() };
        commands.push(command);
        if let Some(writer) = &self.writer {
            let beat = Beat { fence: call.keys.first().cloned().unwrap_or_default(), asking };
            return writer.send(&self.wire, commands, beat, until).await;
        }
        let mut all = redis::pipe();
        for command in commands {
            all.add_command(command);
        }
        Ok(self.wire.send_all(&all, until).await?.pop().unwrap_or(Value::Nil))
    }
}
