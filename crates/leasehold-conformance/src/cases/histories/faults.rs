//! Faults beside the contenders: killed processes, outages of the store and of single clients, evictions.
//!
//! Each kind of fault happens again and again in a task of its own, so that they also happen together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Client, Feature};
use tokio::sync::watch;
use tokio::time::Instant;

use super::run::{OPERATOR, Run, VICTIM, random_up_to};
use super::span;
use crate::fixture::Hook;
use crate::gate::Passing;
use crate::history::Step;
use crate::scene::{Scene, soon};
use crate::verdict::{Stop, Verdict};

/// A lease that ends soon, so that many guards expire within the case. Stores that keep no lease as short use their
/// shortest.
const SHORT_LEASE: Duration = Duration::from_millis(300);
/// The longest time before the first fault of a kind.
const SOON: Duration = Duration::from_millis(200);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A process is killed while it holds.
    Kill,
    /// No client reaches the store for a while.
    Cut,
    /// The client that holds does not reach the store for a while, and the others do.
    Isolate,
    /// The hold is evicted.
    Evict,
}

impl Fault {
    /// The faults that this store can suffer. Any client can be isolated; the fixture decides about the others.
    async fn possible(scene: &Scene) -> Verdict<Vec<Self>> {
        let mut faults = vec![Self::Isolate];
        if matches!(scene.fixture.kill_holder(&scene.key(), scene.lease()), Hook::Does(_)) {
            faults.push(Self::Kill);
        }
        if scene.info().supports(Feature::Evict) {
            faults.push(Self::Evict);
        }
        if matches!(scene.fixture.cut(), Hook::Does(_)) {
            // A fixture may cut as soon as it is asked whether it can.
            scene.cause(scene.fixture.heal()).await?;
            faults.push(Self::Cut);
        }
        Ok(faults)
    }
}

/// What causes one kind of fault.
#[derive(Clone, Debug)]
struct Cause {
    fault: Fault,
    scene: Arc<Scene>,
    run: Arc<Run>,
    operator: Client,
    /// The kinds that have happened.
    happened: Arc<watch::Sender<BTreeSet<Fault>>>,
}

impl Cause {
    /// Causes the fault again and again until the run is over.
    async fn repeat(self) -> Verdict {
        let (run, mut count) = (&self.run, 0);
        // A key is busy for a while after its holder was killed, and the case has an end.
        let last = (self.fault == Fault::Kill).then(|| Instant::now() + span() / 2);
        run.rest(random_up_to(SOON)).await;
        while !run.is_over() && (count == 0 || last.is_none_or(|last| Instant::now() < last)) {
            // The first outage is as long as any, and the others as it comes.
            let time = if count == 0 { run.longest } else { random_up_to(run.longest) };
            let has_happened = match self.fault {
                Fault::Kill => self.kill().await?,
                Fault::Cut => self.cut(time).await?,
                Fault::Isolate => self.isolate(time, count).await?,
                Fault::Evict => self.evict().await?,
            };
            if has_happened {
                count += 1;
                self.happened.send_modify(|kinds| {
                    kinds.insert(self.fault);
                });
                run.rest(random_up_to(run.longest)).await;
            }
        }
        Ok(())
    }

    /// Kills a process that holds. Its hold is part of the history.
    async fn kill(&self) -> Verdict<bool> {
        let (run, cuts) = (&self.run, self.run.cuts.count());
        run.note(VICTIM, Step::Asks { units: 1 });
        let Hook::Does(kill) = self.scene.fixture.kill_holder(&run.key, run.lease) else {
            return Err(Stop::fail("the fixture could kill before, and cannot now"));
        };
        match kill.await {
            Ok(killed) => {
                let (key, token, deadline) = (run.key.as_str(), killed.token, killed.deadline);
                let acquired = Step::Acquired { token, units: 1, deadline };
                run.history.record_at(killed.acquired_at, VICTIM, key, acquired);
                run.history.record_at(killed.killed_at, VICTIM, key, Step::Lost);
                Ok(true)
            }
            // It could not reach the store.
            Err(_) if cuts % 2 == 1 || cuts != run.cuts.count() => {
                run.note(VICTIM, Step::Unknown);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn cut(&self, time: Duration) -> Verdict<bool> {
        let (run, fixture) = (&self.run, &self.scene.fixture);
        run.cuts.begin_or_end();
        self.scene.cause(fixture.cut()).await?;
        run.rest(time).await;
        self.scene.cause(fixture.heal()).await?;
        run.cuts.begin_or_end();
        Ok(true)
    }

    /// Isolates the client that has the long hold: its requests get lost, or every second time the replies to them.
    async fn isolate(&self, time: Duration, count: usize) -> Verdict<bool> {
        let Some(hold) = self.run.next_long_hold().await else { return Ok(false) };
        let connection = &hold.connection;
        connection.outages.begin_or_end();
        connection.gate.let_pass(if count.is_multiple_of(2) { Passing::Nothing } else { Passing::NoReplies });
        // From here on its holder does not end it.
        let is_held = !hold.has_ended();
        if is_held {
            self.run.rest(time).await;
        }
        connection.gate.let_pass(Passing::Everything);
        connection.outages.begin_or_end();
        Ok(is_held)
    }

    async fn evict(&self) -> Verdict<bool> {
        let run = &self.run;
        let Some(hold) = run.next_long_hold().await else { return Ok(false) };
        let token = hold.token;
        run.rest(random_up_to(run.longest / 4)).await;
        run.note(OPERATOR, Step::Evicts { token });
        match self.operator.evict(run.key.as_str(), token).await {
            Ok(has_ended) => Ok(has_ended),
            Err(error) => run.forgive(error).map(|()| false),
        }
    }
}

pub(super) async fn kills_cuts_and_evictions_leave_a_clean_history(scene: Scene) -> Verdict {
    // A busy machine may lose guards of so short a lease, which is no failure here.
    let lease = scene.lease().min(SHORT_LEASE).max(scene.info().min_lease);
    // Twice the lease, unless that is too long for the time that the case has.
    let longest = (lease * 2).min(span() / 2);
    let faults = Fault::possible(&scene).await?;
    let run = Run::with_faults(scene.key(), lease, longest);
    let scene = Arc::new(scene);
    let mut tasks = run.start(&scene).await?;
    let operator = scene.fixture.connect().await?;
    let happened = Arc::new(watch::Sender::new(BTreeSet::new()));
    for &fault in &faults {
        let (scene, run, operator) = (scene.clone(), run.clone(), operator.clone());
        let cause = Cause { fault, scene, run, operator, happened: happened.clone() };
        tasks.spawn(cause.repeat());
    }
    tokio::time::sleep(span()).await;
    // A busy machine makes faults rare, so each kind must have happened, too. The verdict on the history comes first.
    let _ = soon(happened.subscribe().wait_for(|kinds| kinds.len() == faults.len())).await.is_ok();
    // A claim that was lost and asked for again has lost its place, so the order says nothing.
    let granted = run.finish(&scene, tasks, false).await?;
    assert!(granted > 0, "nothing was granted");
    let happened = happened.borrow();
    assert_eq!(happened.len(), faults.len(), "of {faults:?} only {happened:?} happened");
    Ok(())
}
