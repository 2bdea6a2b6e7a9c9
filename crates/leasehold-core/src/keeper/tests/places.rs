//! Waiters that lose their place in the queue.

use super::*;
use crate::layers::Faults;
use crate::logs::Warnings;

#[tokio::test(start_paused = true)]
async fn waiter_that_loses_its_place_hears_of_it() {
    let (warnings, _collecting) = Warnings::collect();
    let world = World::new();
    let holder = world.client().await;
    let guard = holder.mutex("orders/42").acquire().await.unwrap();
    assert_eq!(guard.times_requeued(), 0);
    let faults = Faults::new(world.store.clone());
    let builder = Client::builder().clock(world.clock.clone()).defaults(Options::new().lease(LEASE));
    let lock = builder.connect(faults.clone()).await.unwrap().mutex("orders/42");
    let first = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(LEASE).await;
    // Its place ends while the store hears nothing from it, and another client comes in between.
    faults.cut();
    tokio::time::sleep(LEASE * 3).await;
    let lock = holder.mutex("orders/42");
    let second = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(LEASE).await;
    faults.heal();
    tokio::time::sleep(LEASE).await;
    assert_eq!(warnings.about("lost its place").len(), 1);
    guard.release().await.unwrap();
    let second = second.await.unwrap();
    assert_eq!(second.times_requeued(), 0);
    second.release().await.unwrap();
    assert_eq!(first.await.unwrap().times_requeued(), 1);
}
