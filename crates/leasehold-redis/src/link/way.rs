//! How a call gets to its server: on the connection that all share, or on the one whose writes are acknowledged.

use std::sync::Arc;

use leasehold_core::Result;
use redis::{Cmd, Value, cmd};
use tokio::time::Instant;

use super::node::Node;
use super::wire::Wire;
use super::writer::Writer;
use crate::fault::Silence;
use crate::script::Ack;

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

    /// Sends a command; `asking` for a key whose slot is not this server's yet.
    pub(super) async fn send(&self, command: Cmd, asking: bool, until: Instant) -> Result<Value, Silence> {
        match (&self.writer, asking) {
            (None, false) => self.wire.send(&command, until).await,
            (None, true) => {
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(command);
                Ok(self.wire.send_all(&both, until).await?.pop().unwrap_or(Value::Nil))
            }
            (Some(writer), false) => writer.send(&self.wire, vec![command], until).await,
            (Some(writer), true) => writer.send(&self.wire, vec![cmd("ASKING"), command], until).await,
        }
    }
}
