//! The claims of one client on one key, by seat.
//!
//! Ten thousand tasks of a client may wait for one key: a promotion finds its claim, and a claim leaves, without a walk
//! over the others.

use std::collections::BTreeSet;

use crate::claim::ClaimId;

/// At least one claim. A claim that the store has not answered has seat 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// What most keys have. Needs no memory elsewhere.
    One(u64, ClaimId),
    Many(BTreeSet<(u64, ClaimId)>),
}

impl Places {
    pub(super) fn insert(&mut self, seat: u64, id: ClaimId) {
        match self {
            Self::One(other, first) => *self = Self::Many(BTreeSet::from([(*other, *first), (seat, id)])),
            Self::Many(places) => {
                places.insert((seat, id));
            }
        }
    }

    /// The store has given a claim another seat.
    pub(super) fn change_seat(&mut self, id: ClaimId, from: u64, to: u64) {
        match self {
            Self::One(seat, _) => *seat = to,
            Self::Many(places) => {
                places.remove(&(from, id));
                places.insert((to, id));
            }
        }
    }

    /// Takes a claim out. `true` if it was the last one.
    pub(super) fn remove(&mut self, seat: u64, id: ClaimId) -> bool {
        match self {
            Self::One(..) => true,
            Self::Many(places) => {
                places.remove(&(seat, id));
                places.is_empty()
            }
        }
    }

    /// The claims with this seat.
    pub(super) fn at(&self, seat: u64) -> impl Iterator<Item = ClaimId> + '_ {
        let (first, last) = (ClaimId::from_bytes([0; 16]), ClaimId::from_bytes([u8::MAX; 16]));
        let (one, many) = match self {
            Self::One(only, id) => (Some(*id).filter(|_| *only == seat), None),
            Self::Many(places) => (None, Some(places.range((seat, first)..=(seat, last)))),
        };
        one.into_iter().chain(many.into_iter().flatten().map(|(_, id)| *id))
    }

    /// All claims, in the order of their seats.
    pub(super) fn iter(&self) -> impl Iterator<Item = ClaimId> + '_ {
        let (one, many) = match self {
            Self::One(_, id) => (Some(*id), None),
            Self::Many(places) => (None, Some(places.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten().map(|(_, id)| *id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    #[test]
    fn claim_is_found_by_its_latest_seat_alone() {
        let mut places = Places::One(0, id(1));
        places.insert(0, id(255));
        assert_eq!(places.at(0).collect::<Vec<_>>(), [id(1), id(255)]);
        places.change_seat(id(255), 0, 7);
        assert_eq!((places.at(0).next(), places.at(7).next()), (Some(id(1)), Some(id(255))));
        assert_eq!(places.iter().collect::<Vec<_>>(), [id(1), id(255)]);
        assert!(!places.remove(0, id(1)));
        assert_eq!((places.at(0).next(), places.iter().collect::<Vec<_>>()), (None, vec![id(255)]));
        assert!(places.remove(7, id(255)));
    }

    #[test]
    fn only_claim_of_a_key_changes_its_seat_and_leaves() {
        let mut places = Places::One(0, id(1));
        places.change_seat(id(1), 0, 7);
        assert_eq!((places.at(0).next(), places.at(7).next()), (None, Some(id(1))));
        assert!(places.remove(7, id(1)));
    }
}
