//! One schedule from its beginning to its end.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Change, Claim, Key, Result, Units};

use crate::coverage::Coverage;
use crate::director::Director;
use crate::setup::{PERMITS, Scene, Setup, Spot};
use crate::weather::Sky;
use crate::world::World;

/// How long after the last fault a waiter may still wait: everything that blocks it ends by itself within a lease, its
/// lock delay or its time of rest, one after the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// After this long nothing is left of clients that are gone: the waiters of a latch have leases of 30 s.
const REST: Duration = Duration::from_secs(40);

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

/// What must be true when all is over.
fn audit(world: &World) -> Result<()> {
    for spot in Spot::ALL {
        world.look(spot);
        // The store in memory forgets the dead only when somebody asks.
        let nobody = Claim::new(Key::new(spot.name())?, 1, Units::Exactly(1))?;
        world.ask(world.raw.store().amend(&nobody, &Change::Value { to: [].into(), op: 1 }))?;
    }
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
    let history = world.state().attempts.violations();
    if let Some(first) = history.first() {
        world.violated(first);
    }
    Ok(())
}
