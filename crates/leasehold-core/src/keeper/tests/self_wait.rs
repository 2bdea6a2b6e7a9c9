//! Tasks that wait for what they hold.

use super::*;
use crate::logs::Warnings;

#[tokio::test(start_paused = true)]
async fn task_that_waits_for_its_own_lock_is_warned_once_after_a_second() {
    let (warnings, _collecting) = Warnings::collect();
    let client = World::new().client().await;
    let lock = client.mutex("orders/42");
    let _guard = lock.acquire().await.unwrap();
    assert!(lock.acquire_within(Duration::from_millis(900)).await.unwrap().is_none());
    assert_eq!(warnings.about("orders/42").len(), 0);
    assert!(lock.acquire_within(PATIENCE_AND_MORE).await.unwrap().is_none());
    let told = warnings.about("orders/42");
    assert!(told.len() == 1 && told[0].contains("`Owner`"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn spawned_task_and_barging_task_are_warned_too() {
    let (warnings, _collecting) = Warnings::collect();
    let client = World::new().client().await;
    let lock = client.mutex("orders/42").with(Options::new().lease(LEASE).barging());
    let own = tokio::spawn(async move {
        let _guard = lock.acquire().await.unwrap();
        lock.acquire_within(Duration::from_secs(20)).await.unwrap().is_none()
    });
    assert!(own.await.unwrap());
    assert_eq!(warnings.about("orders/42").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn waits_for_others_cause_no_warning() {
    let (warnings, _collecting) = Warnings::collect();
    let client = World::new().client().await;
    let within = Duration::from_secs(5);
    let (lock, permits) = (client.mutex("orders/42"), client.semaphore("orders/permits", 3));
    let _guard = lock.acquire().await.unwrap();
    let other = tokio::spawn(async move { lock.acquire_within(within).await.unwrap().is_none() });
    assert!(other.await.unwrap());
    // Another task has the permits that are missing, and may give them back.
    let own = permits.acquire().await.unwrap();
    let two = permits.clone();
    let theirs = tokio::spawn(async move { two.permits(2).acquire().await.unwrap() }).await.unwrap();
    assert!(permits.acquire_within(within).await.unwrap().is_none());
    assert_eq!(warnings.about("orders").len(), 0, "{:?}", warnings.about("orders"));
    drop((own, theirs));
}
