//! Members that are cut off from the others while the holder's client still reaches them, and requests that arrive late.

use leasehold_core::Loss;
use leasehold_servers::etcd::{Cluster, Etcd};
use leasehold_servers::{Mode, Proxy};
use tokio::time::{sleep, timeout};

use crate::scene::*;

/// The holder talks to this member only, which then hears nothing of the others.
async fn a_cut_off_member_extends_nothing(choose: impl FnOnce(&Cluster) -> usize) {
    let cluster = Cluster::start();
    let at = choose(&cluster);
    let (holder, other) = (client(&cluster.members()[at].url()).await, client(&others(&cluster, at)).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    still_held(&guard, LEASE).await;
    cluster.cut(at);
    let next = tokio::spawn({
        let other = other.clone();
        async move { acquire(&other).await }
    });
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    // A new leader starts the lease again.
    let next = timeout(SERVED, next).await.expect("the next one is served").unwrap();
    witness.granted(&next);
    // The member that comes back makes the others vote again, for seconds on a busy machine.
    cluster.heal();
    drop((guard, next));
    goes_on(&holder, &witness).await;
    nothing_is_left(|words| cluster.ctl(words), [holder, other]).await;
}

fn others(cluster: &Cluster, at: usize) -> String {
    let but = |(index, member): (usize, &Etcd)| (index != at).then(|| format!("127.0.0.1:{}", member.port()));
    format!("etcd://{}", cluster.members().iter().enumerate().filter_map(but).collect::<Vec<_>>().join(","))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_leader_is_cut_off_is_lost_before_the_next_one_holds() {
    a_cut_off_member_extends_nothing(Cluster::leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_follower_is_cut_off_is_lost_before_the_next_one_holds() {
    a_cut_off_member_extends_nothing(|cluster| (cluster.leader() + 1) % 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_knows_other_members_keeps_its_lock_when_its_own_is_cut_off() {
    let cluster = Cluster::start();
    let holder = client_with(&cluster.url(), LONG).await;
    let guard = acquire(&holder).await;
    for at in 0..3 {
        cluster.cut(at);
        still_held(&guard, LONG).await;
        cluster.heal();
        still_held(&guard, LONG).await;
    }
    guard.release().await.expect("all members are back");
    nothing_is_left(|words| cluster.ctl(words), [holder]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_arrives_after_its_withdrawal_gets_nothing() {
    let server = Etcd::start();
    let ways = [Proxy::to(server.port()), Proxy::to(server.port())];
    let url = format!("etcd://127.0.0.1:{},127.0.0.1:{}", ways[0].port(), ways[1].port());
    let late = client(&url).await;
    // So that a session is there, and the claim is the next thing that is sent.
    acquire(&late).await.release().await.unwrap();
    ways.iter().for_each(|way| way.set(Mode::Hold));
    let claiming = tokio::spawn({
        let late = late.clone();
        async move { acquire(&late).await }
    });
    sleep(LEASE / 10).await;
    claiming.abort();
    // It gives up on the first way, and withdraws on whichever is open; the other one goes on when that is done.
    let withdrawn =
        async || server.ctl(&["get", "--prefix", "--keys-only", "leasehold/refused/"]).contains("refused");
    ways[1].set(Mode::Pass);
    sleep(LEASE).await;
    ways[0].set(Mode::Pass);
    until("the withdrawal is there", withdrawn).await;
    let other = client(&server.url()).await;
    let guard = timeout(SERVED, acquire(&other)).await.expect("nobody holds it");
    guard.release().await.unwrap();
    nothing_is_left(|words| server.ctl(words), [late, other]).await;
}
