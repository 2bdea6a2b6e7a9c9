//! The background task: the only place that renews.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::Keeper;
use super::rounds::Batch;
use crate::clock::{Moment, sleep_until};

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Says that the task is gone, also when its runtime was shut down under it.
pub(super) struct Stopped(pub(super) Arc<Keeper>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.end_waits();
        self.0.stop.notify_waiters();
    }
}

/// Runs until the last client and guard are gone and everything is given back.
pub(super) async fn run(keeper: Arc<Keeper>, _stopped: Stopped) {
    // Calls run side by side: a slow one delays nobody else's lease.
    let mut calls: FuturesUnordered<Call> = FuturesUnordered::new();
    loop {
        let Some(wakes_at) = send_what_is_due(&keeper, &mut calls) else { return };
        tokio::select! {
            () = keeper.wake.notified() => {}
            Some(()) = calls.next() => {}
            () = sleep_until(&*keeper.clock, wakes_at) => {}
        }
    }
}

/// Starts what is to be done now and says when to look again; `None` when there is nothing left to do.
fn send_what_is_due(keeper: &Arc<Keeper>, calls: &mut FuturesUnordered<Call>) -> Option<Moment> {
    let now = keeper.clock.now();
    let mut tables = keeper.lock();
    for batch in tables.collect(now) {
        calls.push(Box::pin(renew(keeper.clone(), batch)));
    }
    for chore in tables.chores.drain(..) {
        calls.push(Box::pin(chore.finish(keeper.clone())));
    }
    if tables.closing && tables.is_idle() && calls.is_empty() {
        return None;
    }
    Some(tables.due.wake_up(now))
}

async fn renew(keeper: Arc<Keeper>, batch: Batch) {
    // Before the first byte is written: the lease counts from no later than this.
    let sent = keeper.clock.now();
    let limit = batch.limit.map_or(keeper.call_timeout, |limit| limit.min(keeper.call_timeout));
    let result = keeper.call_within(limit, keeper.store.renew(&batch.claims)).await;
    let now = keeper.clock.now();
    keeper.lock().renewed(batch, sent, result, now);
}
