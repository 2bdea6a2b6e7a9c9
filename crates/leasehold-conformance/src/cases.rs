//! The laws, one file per group.

mod amending;
mod asking;
mod blocking;
mod cancelling;
mod contention;
mod cost;
mod differential;
mod election;
mod ending;
mod exclusion;
mod faults;
mod guards;
mod histories;
mod job;
mod job_crashes;
mod latch;
mod latch_faults;
mod late;
mod leaks;
mod leases;
mod member;
mod multi;
mod mutex;
mod names;
mod options;
mod order;
mod outages;
mod owner;
mod polling;
mod relay;
mod rwlock;
mod semaphore;
mod sessions;
mod sight;
mod ticket;
mod tokens;

use crate::case::Case;

/// Every case, in the order of the laws.
pub(crate) fn all() -> Vec<Case> {
    [
        exclusion::cases(),
        order::cases(),
        tokens::cases(),
        leases::cases(),
        sessions::cases(),
        ending::cases(),
        amending::cases(),
        sight::cases(),
        asking::cases(),
        member::cases(),
        names::cases(),
        differential::cases(),
        mutex::cases(),
        rwlock::cases(),
        semaphore::cases(),
        latch::cases(),
        latch_faults::cases(),
        election::cases(),
        job::cases(),
        job_crashes::cases(),
        multi::cases(),
        owner::cases(),
        relay::cases(),
        ticket::cases(),
        blocking::cases(),
        options::cases(),
        guards::cases(),
        cancelling::cases(),
        polling::cases(),
        cost::cases(),
        contention::cases(),
        histories::cases(),
        outages::cases(),
        late::cases(),
        faults::cases(),
        // Last: while one of them runs no other does.
        leaks::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
