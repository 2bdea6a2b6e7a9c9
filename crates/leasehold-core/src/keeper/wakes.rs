//! The keeper's ear: what the store says without being asked.

use std::sync::{Arc, Weak};

use super::Keeper;
use super::tables::Tables;
use crate::clock::Moment;
use crate::key::Key;
use crate::store::{Promotion, Wake, Wakes};

/// Weak, because the store may outlive its clients.
#[derive(Debug)]
struct Ear(Weak<Keeper>);

pub(super) fn sink(keeper: &Arc<Keeper>) -> Wakes {
    Arc::new(Ear(Arc::downgrade(keeper)))
}

impl Ear {
    fn note(&self, change: impl FnOnce(&mut Tables, Moment)) {
        if let Some(keeper) = self.0.upgrade() {
            let mut tables = keeper.lock();
            change(&mut tables, keeper.clock.now());
            keeper.rouse(&mut tables);
        }
    }
}

impl Wake for Ear {
    fn promoted(&self, promotion: &Promotion) {
        self.note(|tables, now| {
            tables.promoted(promotion, now);
        });
    }

    fn look(&self, key: &Key) {
        self.note(|tables, now| tables.look(key, now));
    }

    fn look_all(&self) {
        self.note(|tables, now| tables.look_all(now));
    }

    fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}
