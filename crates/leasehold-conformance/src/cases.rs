//! The laws, one file per group.

mod amending;
mod cancelling;
mod contention;
mod cost;
mod differential;
mod ending;
mod exclusion;
mod faults;
mod guards;
mod leaks;
mod leases;
mod mutex;
mod names;
mod options;
mod order;
mod outages;
mod rwlock;
mod semaphore;
mod sight;
mod tokens;

use crate::case::Case;

/// Every case, in the order of the laws.
pub(crate) fn all() -> Vec<Case> {
    [
        exclusion::cases(),
        order::cases(),
        tokens::cases(),
        leases::cases(),
        ending::cases(),
        amending::cases(),
        sight::cases(),
        names::cases(),
        differential::cases(),
        mutex::cases(),
        rwlock::cases(),
        semaphore::cases(),
        options::cases(),
        guards::cases(),
        cancelling::cases(),
        cost::cases(),
        contention::cases(),
        outages::cases(),
        leaks::cases(),
        faults::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
