//! Clients whose runtime has ended.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::{Client, Error, ErrorKind, Memory, Released};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn says_what_to_do(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.to_string().contains("the tokio runtime on which this client was connected has ended"),
        "{error}"
    );
}

#[test]
fn client_of_an_ended_runtime_says_so_at_the_next_call() {
    let ended = runtime();
    // The runtime has no time to poll the client's task.
    let client = ended.block_on(Client::new(Memory::new())).unwrap();
    drop(ended);
    let other = runtime();
    says_what_to_do(&other.block_on(client.mutex("k").acquire()).unwrap_err());
    says_what_to_do(&other.block_on(client.mutex("k").try_acquire()).unwrap_err());
    says_what_to_do(&other.block_on(client.latch("l").set(1)).unwrap_err());
    says_what_to_do(&other.block_on(client.latch("l").count_down()).unwrap_err());
    says_what_to_do(&other.block_on(client.inspect("k")).unwrap_err());
    says_what_to_do(&other.block_on(client.list("")).unwrap_err());
    says_what_to_do(&other.block_on(client.evict("k", 1)).unwrap_err());
    says_what_to_do(&other.block_on(client.ask("k", 1)).unwrap_err());
    other.block_on(client.close()).unwrap();
}

#[test]
fn guard_is_released_after_the_runtime_has_ended() {
    let ended = runtime();
    let store = Memory::new();
    let client = ended.block_on(Client::new(store.clone())).unwrap();
    let guard = ended.block_on(client.mutex("k").acquire()).unwrap();
    drop(ended);
    assert_eq!(runtime().block_on(guard.release()).unwrap(), Released::Held);
    assert_eq!(store.residue(), 0);
}

#[test]
fn waiter_learns_that_the_runtime_of_its_client_has_ended() {
    let (own, other, store) = (runtime(), runtime(), Memory::new());
    let holder = other.block_on(Client::new(store.clone())).unwrap();
    let guard = other.block_on(holder.mutex("k").acquire()).unwrap();
    let client = own.block_on(Client::new(store)).unwrap();
    let waiter = other.spawn(async move { client.mutex("k").acquire().await.map(drop) });
    other.block_on(async {
        while holder.inspect("k").await.unwrap().unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    drop(own);
    let waited = other.block_on(async { tokio::time::timeout(Duration::from_secs(60), waiter).await });
    says_what_to_do(&waited.expect("it waits although nothing would wake it").unwrap().unwrap_err());
    other.block_on(guard.release()).unwrap();
}
