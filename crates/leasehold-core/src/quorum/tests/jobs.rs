//! Jobs by majority.

use super::*;
use crate::Run;

#[tokio::test(start_paused = true)]
async fn a_job_runs_with_default_settings() {
    let set = Set::of(3);
    let quorum = Quorum::builder().members(set.memories.clone()).without_quarantine().build().unwrap();
    let client = Client::builder().clock(set.clock.clone()).connect(quorum).await.unwrap();
    assert_eq!(client.job("nightly").run(|_| async { 42 }).await.unwrap(), Run::Ran(42));
}

#[tokio::test(start_paused = true)]
async fn a_job_has_no_longer_pause_than_the_members_remember() {
    let client = Set::of(3).seat().await.client;
    let error = client.job("nightly").at_least(Duration::from_secs(61)).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("at_least is 61s, this store keeps at most 59.9"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_is_shown_by_the_majority_that_keeps_it_closed() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let job = seat.client.job("nightly").at_least(LEASE * 2).label("h");
    job.run(|_| async {}).await.unwrap();
    seat.ways[2].cut();
    let seen = seat.client.inspect("nightly").await.unwrap().expect("it is not due yet");
    assert!(seen.holders.is_empty(), "{:?}", seen.holders);
    let labels: Vec<_> = seen.finished.iter().map(|finished| finished.label.as_str()).collect();
    assert_eq!((labels, seen.available()), (vec!["h"], 0));
    assert!(job.start().await.unwrap().is_none());
}
