//! A release that is lost must not block its member until the lease ends.

use super::*;

const LOST: Fault = Fault {
    before: Duration::ZERO,
    request: Request::Lost,
    again_after: None,
    after: Duration::ZERO,
    reply: Reply::Never,
};

#[tokio::test(start_paused = true)]
async fn lost_release_of_a_guard_is_repeated() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    seat.ways[1].once(Verb::Release, LOST);
    assert_eq!(guard.release().await.unwrap(), Released::Held);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(set.tokens("k").await, [None; 3], "the member is blocked until the lease ends");
}

#[tokio::test(start_paused = true)]
async fn lost_release_of_a_failed_attempt_is_repeated() {
    let set = Set::of(3);
    let (one, two) = (set.seat().await, set.seat().await);
    one.ways[2].cut();
    let guard = one.client.mutex("k").acquire().await.unwrap();
    two.ways[2].once(Verb::Release, LOST);
    assert!(two.client.mutex("k").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(set.tokens("k").await, [Some(guard.token()), Some(guard.token()), None]);
}

/// A member that stays away is not asked for longer than the lease: nothing is left to release by then.
#[tokio::test(start_paused = true)]
async fn releases_are_not_repeated_after_the_lease() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    seat.ways[1].cut();
    guard.release().await.unwrap();
    tokio::time::sleep(LEASE * 2).await;
    let calls = seat.ways[1].injected().calls;
    assert!(calls > 4, "{calls} calls: the release was not repeated");
    tokio::time::sleep(LEASE * 4).await;
    assert_eq!(seat.ways[1].injected().calls, calls, "a release was repeated after its lease");
}
