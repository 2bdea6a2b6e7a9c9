//! Networks that fail independently, while all clients want the lock.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Memory, Result};
use tokio::task::JoinHandle;

use super::LEASE;
use super::client::Peer;
use super::judge::Judge;
use super::network::Condition;
use crate::cancel::{Patience, unless_cancelled};

const CLIENTS: usize = 3;

/// How long networks fail.
const STORM: Duration = Duration::from_secs(15);

/// How far the clocks are ahead of the slowest, in milliseconds.
const AHEAD: [u64; 5] = [0, 0, 5, 1_000, 8_000];

pub(super) async fn play(judge: &Arc<Judge>, members: &[Memory], mut random: Rng) -> Result<()> {
    let mut peers = Vec::new();
    for number in 0..CLIENTS {
        let ahead = Duration::from_millis(AHEAD[random.usize(0..AHEAD.len())]);
        peers.push(Arc::new(Peer::start(judge, number, members, ahead, &mut random).await?));
    }
    let end = tokio::time::Instant::now() + STORM;
    let work = |peer: &Arc<Peer>, random: Rng| tokio::spawn(worker(judge.clone(), peer.clone(), random, end));
    let workers: Vec<JoinHandle<()>> = peers.iter().map(|peer| work(peer, random.fork())).collect();
    while tokio::time::Instant::now() < end {
        let peer = &peers[random.usize(0..peers.len())];
        let network = &peer.networks[random.usize(0..peer.networks.len())];
        network.set(Condition::any(&mut random));
        tokio::time::sleep(Duration::from_micros(random.u64(0..200_000))).await;
    }
    peers.iter().for_each(|peer| peer.set_networks(Condition::Good));
    for worker in workers {
        if worker.await.is_err_and(|failure| failure.is_panic()) {
            judge.violated("a worker panicked");
        }
    }
    for peer in &peers {
        if let Some(guard) = peer.must_be_served().await {
            peer.release(guard).await;
        }
    }
    Ok(())
}

/// Acquires, holds, and releases or drops, until the storm is over.
async fn worker(judge: Arc<Judge>, peer: Arc<Peer>, mut random: Rng, end: tokio::time::Instant) {
    let micros = |random: &mut Rng, most: Duration| {
        Duration::from_micros(random.u64(0..u64::try_from(most.as_micros()).unwrap_or(u64::MAX)))
    };
    while tokio::time::Instant::now() < end {
        let limit = micros(&mut random, LEASE);
        let patience = match random.u32(0..10) {
            0 => Patience::Polls(random.u32(1..8)),
            1 => Patience::For(micros(&mut random, LEASE / 3)),
            _ => Patience::Endless,
        };
        match unless_cancelled(peer.acquire_within(limit), patience).await {
            None => judge.count(|coverage| coverage.cancellations += 1),
            Some(None) => {}
            Some(Some(guard)) => {
                let longest = [LEASE / 100, LEASE / 2, LEASE * 2][random.usize(0..3)];
                tokio::time::sleep(micros(&mut random, longest)).await;
                match random.u32(0..4) {
                    0 => drop(guard),
                    _ => peer.release(guard).await,
                }
            }
        }
        tokio::time::sleep(micros(&mut random, LEASE / 20)).await;
    }
}
