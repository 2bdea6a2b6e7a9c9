//! How long a finished job stays closed, although clients know the server's time only to a second.

use std::time::{Duration, Instant};

use leasehold_core::{Client, Run};
use leasehold_memcached::memcached;
use leasehold_servers::memcached::Memcached;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_job_stays_closed_for_a_second_more_than_was_asked_for() {
    const AT_LEAST: Duration = Duration::from_secs(300);
    const ROUNDED: Duration = Duration::from_millis(20);
    let server = Memcached::start();
    let store = memcached(&server.url()).expect("the URL makes sense");
    let client = Client::new(store).await.expect("the server answers");
    let start = Instant::now();
    let ran = client.job("nightly").at_least(AT_LEAST).run(|_| async { 42 }).await;
    assert_eq!(ran.expect("the server answers"), Run::Ran(42));
    let seen = client.inspect("nightly").await.expect("the server answers").expect("it is not due yet");
    // Another client may believe that the server's time is up to a second later.
    let closed_for = start.elapsed() + seen.finished[0].due_in + ROUNDED;
    assert!(closed_for >= AT_LEAST + Duration::from_secs(1), "{closed_for:?}");
}
