//! One schedule from its beginning to its end.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Change, Claim, Key, Result, Units};

use crate::copies::ALL_ARRIVED;
use crate::coverage::Coverage;
use crate::director::Director;
use crate::setup::{LONGEST_STOP, PERMITS, Scene, Setup, Spot};
use crate::weather::Sky;
use crate::world::World;

/// How long after the last fault a waiter may still wait: everything that blocks it ends by itself within a lease, its
/// lock delay or its time of rest, one after the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// After this long nothing is left of clients that are gone: the waiters of a latch have leases of 30 s, and late copies of
/// the requests that set it and that resized the semaphore are refused for a minute.
const REST: Duration = Duration::from_secs(70);

/// What came of a schedule.
#[derive(Debug)]
pub struct Verdict {
    /// Which it was.
    pub seed: u64,
    /// The law that was broken first, if any.
    pub violation: Option<String>,
    /// The story, line by line.
    pub story: Vec<String>,
    /// What happened in it.
    pub coverage: Coverage,
}

impl Verdict {
    /// Whether a client believed in units that the store had not granted to it.
    pub fn is_false_belief(&self) -> bool {
        let says = |words: &str| self.violation.as_ref().is_some_and(|violation| violation.contains(words));
        says("are believed in by") || says("the store says")
    }
}

/// Runs the schedule of this seed.
///
/// The same seed makes the same plan of events and faults. What it does not fix are the ids of claims and the order in
/// which tokio looks at the branches of a `select!` that are ready together.
///
/// # Panics
/// When the runtime cannot be built.
pub fn run(setup: &Setup, seed: u64) -> Verdict {
    // The runtime's jitter comes from this thread's generator.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without input and output needs nothing from the system");
    let world = runtime.block_on(async {
        let mut random = Rng::with_seed(seed);
        let scene = Scene::new(setup, &mut random);
        let world = World::new(setup.clone(), scene);
        tokio::select! {
            biased;
            () = world.failed.notified() => {}
            done = play(world.clone(), random) => {
                if let Err(error) = done {
                    world.violated(format!("an administrator got an error: {error}"));
                }
            }
        }
        world
    });
    drop(runtime);
    let mut story = vec![format!("{:?}", world.scene)];
    story.extend(world.lines());
    let mut state = world.state();
    state.coverage.schedules = 1;
    Verdict { seed, violation: state.violation.take(), story, coverage: state.coverage }
}

async fn play(world: Arc<World>, random: Rng) -> Result<()> {
    let mut director = Director::start(world.clone(), random).await?;
    director.run().await?;
    finish(&world, director).await?;
    // The requests that set latches whose time is over are refused from here on, not from the audit on.
    ask_about_everything(&world)?;
    tokio::time::sleep(REST).await;
    audit(&world)
}

/// Lets everybody come to an end on a good network.
async fn finish(world: &World, director: Director) -> Result<()> {
    for slot in &director.slots {
        let machine = slot.now();
        machine.weather.turn(Sky::Clear);
        machine.awake().await;
    }
    let office = &director.office.client;
    // Nobody may be left waiting for these.
    office.semaphore(Spot::PERMITS.name(), PERMITS).resize(PERMITS).await?;
    {
        world.state().latch.given += world.scene.latch_count;
    }
    office.latch(Spot::LATCH.name()).count_down_by(world.scene.latch_count).await?;

    let deadline = tokio::time::Instant::now() + PATIENCE;
    for (home, worker) in director.workers {
        match tokio::time::timeout_at(deadline, worker).await {
            Err(_) => world.violated(format!("a worker of client {home} is left waiting")),
            Ok(Err(failure)) if failure.is_panic() => {
                world.violated(format!("a worker of client {home} panicked: {failure}"));
            }
            Ok(_) => {}
        }
    }
    // Settings of the latch that are still under way, or wait for a process that is stopped, arrive before it is deleted
    // for good.
    tokio::time::sleep(ALL_ARRIVED + LONGEST_STOP).await;
    office.latch(Spot::ROUNDS.name()).delete().await?;
    {
        let mut state = world.state();
        let endings = state.rounds.endings;
        state.coverage.latch_rounds = state.rounds.done() as u64;
        state.coverage.latch_deletions = endings.deleted;
        state.coverage.latch_timeouts = endings.by_time;
    }
    for (index, slot) in director.slots.iter().enumerate() {
        // Some are closed and some are dropped: both give everything back.
        let closing = async {
            if index % 2 == 0 {
                slot.now().client.close().await?;
            }
            Ok(())
        };
        tokio::time::timeout_at(deadline, closing).await.unwrap_or_else(|_| {
            world.violated(format!("client {index} does not close at the end"));
            Ok::<(), leasehold_core::Error>(())
        })?;
    }
    Ok(())
}

/// Makes the store in memory remove claims that are over: it does that only when a request names their key.
fn ask_about_everything(world: &World) -> Result<()> {
    for spot in Spot::ALL {
        world.look(spot);
        let nobody = Claim::new(Key::new(spot.name())?, 1, Units::Exactly(1))?;
        world.ask(world.raw.store().amend(&nobody, &Change::Value { to: [].into(), op: 1 }))?;
    }
    Ok(())
}

/// What must be true when all is over.
fn audit(world: &World) -> Result<()> {
    ask_about_everything(world)?;
    let residue = world.raw.residue();
    if residue > 0 {
        let left: Vec<_> = Spot::ALL.into_iter().filter_map(|spot| world.inspect(spot)).collect();
        world.violated(format!("{residue} things are left at the store: {left:?}"));
    }
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if tasks > 0 {
        world.violated(format!("{tasks} tasks are left"));
    }
    let revived = world.state().beliefs.revived();
    if revived > 0 {
        world.violated(format!("{revived} guards were lost and came back"));
    }
    let history = world.state().attempts.violations(&world.scene);
    if let Some(first) = history.first() {
        world.violated(first);
    }
    Ok(())
}
