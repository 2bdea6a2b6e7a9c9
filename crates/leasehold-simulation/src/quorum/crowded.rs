//! A client with a fast clock takes the lock again and again; a client with a slow clock must get it too.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Memory, Result};

use super::client::Peer;
use super::judge::Judge;
use super::network::Condition;

/// How often the slow client must be served.
const TURNS: usize = 3;

pub(super) async fn play(judge: &Arc<Judge>, members: &[Memory], mut random: Rng) -> Result<()> {
    let aheads = [5, 50, 1_000, 8_000];
    let ahead = Duration::from_millis(aheads[random.usize(0..aheads.len())]);
    let fast = Peer::start(judge, 0, members, ahead, &mut random).await?;
    let slow = Peer::start(judge, 1, members, Duration::ZERO, &mut random).await?;
    for peer in [&fast, &slow] {
        let condition = if random.bool() { Condition::Good } else { Condition::Slow };
        peer.set_networks(condition);
    }
    // Free for less than the shortest pause before a retry: a client that only learns from its failures comes too late.
    let (held, free) = (random.u64(1_000..10_000), random.u64(500..2_000));
    let hog = async {
        loop {
            if let Some(guard) = fast.acquire_within(super::SERVED_WITHIN).await {
                tokio::time::sleep(Duration::from_micros(held)).await;
                fast.release(guard).await;
            }
            tokio::time::sleep(Duration::from_micros(free)).await;
        }
    };
    let turns = async {
        for _ in 0..TURNS {
            if let Some(guard) = slow.must_be_served().await {
                slow.release(guard).await;
            }
        }
    };
    tokio::select! {
        biased;
        () = hog => {}
        () = turns => {}
    }
    Ok(())
}
