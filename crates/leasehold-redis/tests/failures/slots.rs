//! A slot that is being moved: the server carries out each command of a script as long as its key is there, and refuses
//! to make a key anew. So no script may delete what it is about to write.

use std::fmt::Debug;
use std::time::Duration;

use leasehold_core::{Answer, Change, Claim, IfBusy, Key, Loss, Released, Store, Units};
use leasehold_redis::Redis;
use leasehold_servers::redis::Cluster;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

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

/// How long the slot stands still after its move has begun: several attempts of a request fit in.
const STANDSTILL: Duration = Duration::from_millis(500);

/// Sends requests when the slot has begun to move, and checks that they wait without changing these locks until the keys
/// move.
async fn held_up_by_move<T: Debug + Send + 'static>(
    servers: &mut Cluster,
    locks: &[&Claim],
    requests: impl Future<Output = T> + Send + 'static,
) -> T {
    let from = servers.owner(KEY_TAG, 0);
    let source = redis::Client::open(servers.server(from).url()).expect("the URL makes sense");
    let stored = || -> Vec<Vec<u8>> {
        let mut source = source.get_connection().expect("the server answers");
        let names = locks.iter().map(|claim| format!("leasehold:{}", claim.key));
        names.map(|name| redis::cmd("DUMP").arg(name).query(&mut source).expect("it has the lock")).collect()
    };
    let (mut requests, mut sent) = (Some(requests), None);
    servers.move_slot(KEY_TAG, (from + 1) % 3, || {
        if let Some(requests) = requests.take() {
            let before = stored();
            let mut task = tokio::spawn(requests);
            let early = block_in_place(|| Handle::current().block_on(timeout(STANDSTILL, &mut task)));
            assert!(early.is_err(), "the requests did not wait for the move: {early:?}");
            assert!(stored() == before, "a refused request has changed a lock");
            sent = Some(task);
        }
    });
    let sent = sent.expect("it was sent when the move began").await;
    sent.expect("the requests do not panic")
}

/// A store whose requests wait for longer than a move takes here.
fn patient(servers: &Cluster) -> Redis {
    Redis::from_url(&format!("{}?timeout=20s", servers.url())).expect("the URL makes sense")
}

/// A latch in the slot that moves, and a claim that waits for it to open.
async fn latch(store: &Redis, name: &str, lease: Option<Duration>) -> (Claim, u64, Claim) {
    let key = Key::new(format!("{name}{KEY_TAG}")).expect("a name");
    let waiter = Claim { key, limit: 9, ..claim() };
    let latch = Claim { lease, count: Some(1), units: Units::Exactly(9), ..waiter.clone() };
    let latch = Claim { id: claim().id, ..latch };
    let Answer::Granted(grant) = ask(store, &latch).await else { panic!("the latch is open") };
    assert!(matches!(ask(store, &waiter).await, Answer::Waiting(_)));
    (latch, grant.token, waiter)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_that_end_while_their_slot_moves_wait_for_the_move() {
    let mut servers = Cluster::start();
    let store = patient(&servers);
    let (opened, token, waiter) = latch(&store, "opened", None).await;
    let (deleted, other_token, other_waiter) = latch(&store, "deleted", None).await;
    let (one, two) = (store.clone(), store.clone());
    let (give, ends) = (opened.clone(), deleted.key.clone());
    let requests = async move {
        let change = Change::Give { n: 1, op: 1, token };
        tokio::join!(one.amend(&give, &change), two.evict(&ends, other_token))
    };
    let (left, evicted) = held_up_by_move(&mut servers, &[&opened, &deleted], requests).await;
    assert_eq!(left.expect("it waited for the move"), Answer::Left(0));
    assert!(evicted.expect("it waited for the move"), "the latch was not there");
    let heard = store.renew(&[waiter, other_waiter]).await.expect("the servers answer");
    assert!(matches!(heard[..], [Answer::Granted(_), Answer::Gone]), "{heard:?}");
    for late_copy in [&opened, &deleted] {
        assert_eq!(ask(&store, late_copy).await, Answer::Gone);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_find_an_expired_latch_while_its_slot_moves_wait_for_the_move() {
    let mut servers = Cluster::start();
    let store = patient(&servers);
    let soon = Some(Duration::from_millis(300));
    let (renewed, _, waiter) = latch(&store, "renewed", soon).await;
    let (released, _, leaving) = latch(&store, "released", soon).await;
    let second = Claim { id: claim().id, ..leaving.clone() };
    assert!(matches!(ask(&store, &second).await, Answer::Waiting(_)));
    sleep(Duration::from_millis(400)).await;
    let (one, two, waiters) = (store.clone(), store.clone(), [waiter]);
    let requests = async move { tokio::join!(one.renew(&waiters), two.release(&leaving, None)) };
    let (heard, left) = held_up_by_move(&mut servers, &[&renewed, &released], requests).await;
    let heard = heard.expect("it waited for the move");
    assert!(matches!(heard[..], [Answer::Granted(_)]), "{heard:?}");
    assert_eq!(left.expect("it waited for the move"), Released::Waiting);
    let heard = store.renew(&[second]).await.expect("the servers answer");
    assert!(matches!(heard[..], [Answer::Granted(_)]), "{heard:?}");
    for late_copy in [&renewed, &released] {
        assert_eq!(ask(&store, late_copy).await, Answer::Gone);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_slot_takes_longer_to_move_than_its_lease_is_lost_by_its_deadline() {
    let mut servers = Cluster::start();
    let client = client(&servers.url()).await;
    let witness = Witness::default();
    let guard = acquire(&client).await;
    witness.granted(&guard);
    let from = servers.owner(KEY_TAG, 0);
    let (mut step, mut loss) = (0, None);
    servers.move_slot(KEY_TAG, (from + 1) % 3, || {
        step += 1;
        // One of the lock's keys has moved, and the others have not.
        if step == 2 {
            loss = Some(block_in_place(|| Handle::current().block_on(lost_in_time(&guard))));
        }
    });
    assert_eq!(loss, Some(Loss::Expired));
    goes_on(&client, &witness).await;
}
