//! Which server has which slot.

use std::sync::Arc;

use tokio::time::Instant;

use super::node::Node;
use super::wire::Wire;
use crate::names::SLOTS;
use crate::url::Address;

/// No server has the slot.
const NOBODY: u16 = u16::MAX;

/// The primaries, and their slots.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// `None` where one server has everything.
    owners: Option<Box<[u16]>>,
    nodes: Vec<(Address, Arc<Node>)>,
}

impl Map {
    /// One server for everything.
    pub(super) fn single(address: Address, node: Arc<Node>) -> Self {
        Self { owners: None, nodes: vec![(address, node)] }
    }

    /// A cluster's: the first and last slot of each range, and who has it.
    pub(super) fn cluster(ranges: &[(u16, u16, Address)], node: impl Fn(&Address) -> Arc<Node>) -> Self {
        let mut map = Self { owners: Some(vec![NOBODY; SLOTS].into()), nodes: Vec::new() };
        for (first, last, address) in ranges {
            map.give(*first..=*last, address, || node(address));
        }
        map.nodes.sort_by(|a, b| a.0.cmp(&b.0));
        // The order of the nodes changed, so say again who has what.
        for (first, last, address) in ranges {
            map.give(*first..=*last, address, || node(address));
        }
        map
    }

    /// Gives slots to a server.
    pub(super) fn give(
        &mut self,
        slots: std::ops::RangeInclusive<u16>,
        to: &Address,
        node: impl FnOnce() -> Arc<Node>,
    ) {
        let at = self.nodes.iter().position(|(address, _)| address == to).unwrap_or_else(|| {
            self.nodes.push((to.clone(), node()));
            self.nodes.len() - 1
        });
        let Some(owners) = &mut self.owners else { return };
        for slot in slots {
            if let Some(owner) = owners.get_mut(usize::from(slot)) {
                *owner = u16::try_from(at).unwrap_or(NOBODY);
            }
        }
    }

    /// Who has the slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        let at = match &self.owners {
            None => 0,
            Some(owners) => usize::from(*owners.get(usize::from(slot))?),
        };
        self.nodes.get(at).map(|(_, node)| node)
    }

    /// A connection to who has the slot.
    pub(crate) async fn wire(&self, slot: u16, until: Instant) -> Option<Wire> {
        self.owner(slot)?.connected(until).await.ok()
    }

    pub(super) fn nodes(&self) -> &[(Address, Arc<Node>)] {
        &self.nodes
    }

    /// A connection to any server, a different one each time where there are several.
    pub(crate) async fn any(&self, until: Instant) -> Option<Wire> {
        let up: Vec<_> = self.nodes.iter().filter_map(|(_, node)| node.wire()).collect();
        if let Some(wire) = fastrand::choice(up) {
            return Some(wire);
        }
        let (_, node) = fastrand::choice(&self.nodes)?;
        node.connected(until).await.ok()
    }
}
