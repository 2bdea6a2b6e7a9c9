//! The store against the model, move by move.

use std::sync::Arc;

use crate::case::cases;
use crate::differential::play;
use crate::scale::Scale;
use crate::scene::Scene;
use crate::verdict::{Stop, Verdict};

cases!("differential": random_sequences_give_the_answers_of_the_model);

/// How many operations a sequence has.
const STEPS: usize = 60;
/// How many are played at the same time, each on a key of its own.
const AT_ONCE: usize = 30;

async fn random_sequences_give_the_answers_of_the_model(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let sequences = Scale::chosen().pick(60, 240, 2_000);
    let scene = Arc::new(scene);
    let mut games = tokio::task::JoinSet::new();
    // Always the same ones, so that a failure stays one; a larger scale goes further.
    for seed in 0..sequences {
        // Side by side, because most of a game is waiting for something to be over.
        while games.len() >= AT_ONCE {
            finished(games.join_next().await)?;
        }
        let scene = scene.clone();
        games.spawn(async move { play(&scene, seed, STEPS).await });
    }
    while !games.is_empty() {
        finished(games.join_next().await)?;
    }
    Ok(())
}

fn finished(game: Option<Result<Verdict, tokio::task::JoinError>>) -> Verdict {
    game.map_or(Ok(()), |joined| joined.map_err(Stop::fail)?)
}
