//! Who hears of a hand-over, and how: inside a client by the answer to the release, elsewhere by a message.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{Answer, Change, Claim, Inbox, Key, Promotion, Store, Units, Wake};
use leasehold_postgres::Postgres;
use leasehold_servers::postgres::{Bouncer, Postgres as Server};
use leasehold_servers::wait_until;

/// Ends a hang.
const SOON: Duration = Duration::from_secs(30);
const HERE: Inbox = Inbox(7);

/// Remembers what it was told.
#[derive(Debug, Default)]
struct Spy {
    promotions: Mutex<Vec<Promotion>>,
    looks: Mutex<Vec<Key>>,
}

impl Spy {
    fn seats(&self) -> Vec<u64> {
        self.promotions.lock().unwrap().iter().map(|told| told.seat).collect()
    }

    fn looks(&self) -> usize {
        self.looks.lock().unwrap().len()
    }
}

impl Wake for Spy {
    fn promoted(&self, promotion: &Promotion) {
        self.promotions.lock().unwrap().push(promotion.clone());
    }

    fn look(&self, key: &Key) {
        self.looks.lock().unwrap().push(key.clone());
    }

    fn look_all(&self) {}

    fn is_gone(&self) -> bool {
        false
    }
}

async fn open(url: &str) -> (Postgres, Arc<Spy>) {
    let (store, spy) = (Postgres::from_url(url).unwrap(), Arc::new(Spy::default()));
    store.open(HERE, spy.clone()).await.unwrap();
    (store, spy)
}

/// A claim that holds, and the seat of one that waits behind it.
async fn holder_and_waiter(store: &Postgres) -> (Claim, u64, u64) {
    let claim = || {
        let claim = Claim::new(Key::new("orders/42").unwrap(), 1, Units::Exactly(1)).unwrap();
        Claim { inbox: HERE, ..claim }
    };
    let (first, second) = (claim(), claim());
    let Answer::Granted(held) = store.claim(&first).await.unwrap() else { panic!("it was free") };
    let Answer::Waiting(place) = store.claim(&second).await.unwrap() else { panic!("it was held") };
    (first, held.token, place.seat)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_a_client_the_answer_tells_and_nothing_else() {
    let server = Server::start();
    let (store, spy) = open(&server.url()).await;
    let (holds, token, next) = holder_and_waiter(&store).await;
    store.release(&holds, None).await.unwrap();
    assert_eq!(spy.seats(), [next]);
    let told = spy.promotions.lock().unwrap()[0].clone();
    assert_eq!((told.key, told.inbox, told.units), (holds.key.clone(), HERE, 1));
    assert!(told.token > token);
    // Messages come in order: one that was sent with the release would be here before this one.
    store.amend(&holds, &Change::Ask(told.token)).await.unwrap();
    wait_until("it is asked", SOON, || spy.looks() > 0);
    assert_eq!(spy.seats(), [next]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_a_client_the_answer_tells_behind_a_pooler_too() {
    let server = Server::start();
    let bouncer = Bouncer::to(&server, &[]);
    let (store, spy) = open(&bouncer.url()).await;
    let (holds, _, next) = holder_and_waiter(&store).await;
    store.release(&holds, None).await.unwrap();
    assert_eq!(spy.seats(), [next]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_pass_it_on_leaves_it_to_the_database() {
    let server = Server::start();
    let ((store, spy), other) = (open(&server.url()).await, Postgres::from_url(&server.url()).unwrap());
    let (holds, _, next) = holder_and_waiter(&store).await;
    // The same claim, given back by a store that does not have its client.
    other.release(&holds, None).await.unwrap();
    wait_until("it is told", SOON, || spy.seats() == [next]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_looks_when_nobody_hears_the_answer() {
    let server = Server::start();
    let (store, spy) = open(&server.url()).await;
    let (holds, _, _) = holder_and_waiter(&store).await;
    // Sent, and dropped before there could be an answer.
    assert!(store.release(&holds, None).now_or_never().is_none());
    assert_eq!((spy.looks(), spy.seats().len()), (1, 0));
}
