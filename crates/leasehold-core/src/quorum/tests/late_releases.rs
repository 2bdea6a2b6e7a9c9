//! A release that arrives late must find nothing to end: not the claim of a later attempt either.

use super::*;

const REFUSED: Fault = Fault {
    before: Duration::ZERO,
    request: Request::Refused,
    again_after: None,
    after: Duration::ZERO,
    reply: Reply::Delivered,
};

/// Refuses the first `claims` claims on this way, and everything else passes.
fn refuse_claims(way: &Faults<Memory>, claims: usize) {
    for _ in 0..claims {
        way.once(Verb::Claim, REFUSED);
    }
}

/// Delivers the next release on this way this much later.
fn delay_release(way: &Faults<Memory>, by: Duration) {
    way.once(Verb::Release, Fault { before: by, ..Fault::default() });
}

/// The first attempt is granted by one member, and its release is late. The third attempt is granted by that member and
/// one more, and then the release arrives.
#[tokio::test(start_paused = true)]
async fn late_release_does_not_end_the_third_attempt() {
    let set = Set::of(3);
    let (one, two) = (set.seat().await, set.seat().await);
    refuse_claims(&one.ways[1], 2);
    refuse_claims(&one.ways[2], 100);
    delay_release(&one.ways[0], Duration::from_secs(3));
    let guard = one.client.mutex("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let second = two.client.mutex("k").try_acquire().await.unwrap();
    assert!(!(guard.is_valid() && second.is_some()), "two valid guards: a late release ended a newer claim");
    assert!(guard.is_valid());
}

/// The first claim never reaches its member, and the release that refuses it is late. The second attempt is granted there
/// before the release arrives.
#[tokio::test(start_paused = true)]
async fn late_release_does_not_end_the_second_attempt() {
    let set = Set::of(3);
    let (one, two) = (set.seat().await, set.seat().await);
    one.ways[0].once(Verb::Claim, Fault { request: Request::Lost, reply: Reply::Lost, ..Fault::default() });
    refuse_claims(&one.ways[1], 1);
    refuse_claims(&one.ways[2], 100);
    delay_release(&one.ways[0], Duration::from_secs(2));
    let guard = one.client.mutex("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let second = two.client.mutex("k").try_acquire().await.unwrap();
    assert!(!(guard.is_valid() && second.is_some()), "two valid guards: a late release ended a newer claim");
    assert!(guard.is_valid());
}

/// One member granted with another number and is asked to release that, while the claim holds on the others. When the
/// member gets the claim back later, that release may still be on its way.
#[tokio::test(start_paused = true)]
async fn member_that_is_asked_to_release_a_stray_gets_another_id() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let now = seat.client.mutex("other").acquire().await.unwrap().token();
    raise(&set.memories[2], now + 10_000_000).await;
    let claim = Claim::new(Key::new("k").unwrap(), crate::WHOLE, Units::Exactly(crate::WHOLE)).unwrap();
    let answer = seat.quorum.claim(&claim).await.unwrap();
    assert!(matches!(answer, Answer::Granted(grant) if grant.token < now + 10_000_000));
    let standings = &seat.quorum.0.standings;
    soon(async || set.tokens("k").await[2].is_none()).await;
    let ids = standings.get(&claim.id).unwrap().ids;
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2], "an id that was released is used again");
    assert!(!ids.contains(&claim.id), "the claim's own id leaves the process");
}
