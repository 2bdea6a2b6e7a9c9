//! A slot that is being moved: the server carries out each command of a script as long as its key is there, and refuses
//! to make a key anew. So no script may delete what it is about to write.

use std::time::Duration;

use leasehold_core::{Answer, Claim, IfBusy, Key, Released, Store, Units};
use leasehold_redis::Redis;
use leasehold_servers::redis::Cluster;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::scene::*;

/// Does something when the slot of the lock has begun to move, and nothing of it was moved yet.
fn while_moving<T>(servers: &mut Cluster, act: impl Future<Output = T>) -> T {
    let (mut act, mut done) = (Some(act), None);
    let from = servers.owner(KEY_TAG, 0);
    servers.move_slot(KEY_TAG, (from + 1) % 3, || {
        if let Some(act) = act.take() {
            done = Some(block_in_place(|| Handle::current().block_on(act)));
        }
    });
    done.expect("it was done when the move began")
}

const KEY_TAG: &str = "{:orders/42}";

fn claim() -> Claim {
    let key = Key::new(KEY).expect("a name");
    Claim { lease: Some(Duration::from_secs(60)), ..Claim::new(key, 1, Units::Exactly(1)).expect("it fits") }
}

async fn ask(store: &Redis, claim: &Claim) -> Answer {
    store.claim(claim).await.expect("the servers answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_while_the_slot_moves_serves_the_only_waiter() {
    let mut servers = Cluster::start();
    let store = Redis::from_url(&servers.url()).expect("the URL makes sense");
    let (holder, waiter) = (claim(), claim());
    assert!(matches!(ask(&store, &holder).await, Answer::Granted(_)));
    assert!(matches!(ask(&store, &waiter).await, Answer::Waiting(_)));
    let released = while_moving(&mut servers, store.release(&holder, None));
    assert_eq!(released.expect("all that it needs is there"), Released::Held);
    let heard = store.renew(std::slice::from_ref(&waiter)).await.expect("the servers answer");
    assert!(matches!(heard[..], [Answer::Granted(_)]), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_while_the_slot_moves_buries_the_only_waiter_and_keeps_the_hold() {
    let mut servers = Cluster::start();
    let store = Redis::from_url(&servers.url()).expect("the URL makes sense");
    let (holder, dead) = (claim(), Claim { patience: Duration::from_millis(200), ..claim() });
    assert!(matches!(ask(&store, &holder).await, Answer::Granted(_)));
    assert!(matches!(ask(&store, &dead).await, Answer::Waiting(_)));
    sleep(Duration::from_millis(400)).await;
    let renewed = while_moving(&mut servers, store.renew(std::slice::from_ref(&holder)));
    let renewed = renewed.expect("all that it needs is there");
    assert!(matches!(renewed[..], [Answer::Granted(_)]), "{renewed:?}");
    let another = Claim { if_busy: IfBusy::Leave, ..claim() };
    assert_eq!(ask(&store, &another).await, Answer::Busy);
}
