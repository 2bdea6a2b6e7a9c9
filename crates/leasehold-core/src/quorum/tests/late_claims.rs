//! A copy of a claim that arrives late must not leave a hold behind, no matter how the claim ended on its member.

use super::*;

/// When the first copy of the claim reaches the third member.
const LATE: Duration = Duration::from_secs(4);

/// A client that holds on two members, while its claim is still on the way to the third. That member has seen a larger
/// number, so whatever it grants is a stray.
async fn hold_with_a_late_copy(set: &Set) -> (Seat, crate::Guard) {
    let seat = set.seat().await;
    let now = seat.client.mutex("other").acquire().await.unwrap().token();
    raise(&set.memories[2], now + 10_000_000).await;
    seat.ways[2].once(Verb::Claim, Fault { before: LATE, ..Fault::default() });
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    // The member has not answered within its time.
    tokio::time::sleep(LATE / 2).await;
    (seat, guard)
}

#[tokio::test(start_paused = true)]
async fn late_copy_is_refused_after_a_stray_was_released() {
    let set = Set::of(3);
    let (_seat, guard) = hold_with_a_late_copy(&set).await;
    // The renewal finds nothing on the third member, claims again under the same id, and gets a stray number.
    guard.renew(LEASE).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(set.tokens("k").await, [Some(guard.token()), Some(guard.token()), None]);
    tokio::time::sleep(LATE / 2).await;
    assert_eq!(set.tokens("k").await[2], None, "a late copy of the claim left a hold behind");
}

#[tokio::test(start_paused = true)]
async fn late_copy_is_refused_after_a_release_that_overtook_another_copy() {
    let set = Set::of(3);
    let (seat, guard) = hold_with_a_late_copy(&set).await;
    seat.ways[2].once(Verb::Claim, Fault { before: Duration::from_millis(300), ..Fault::default() });
    guard.renew(LEASE).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.release().await.unwrap();
    tokio::time::sleep(LATE / 2).await;
    assert_eq!(set.tokens("k").await, [None; 3], "a late copy of the claim left a hold behind");
}

#[tokio::test(start_paused = true)]
async fn late_copy_is_refused_after_its_repeat_was_given_back() {
    let set = Set::of(3);
    let (one, two) = (set.seat().await, set.seat().await);
    // Another client holds on two members, so that no attempt of the first gets a majority.
    two.ways[2].cut();
    let _guard = two.client.mutex("k").acquire().await.unwrap();
    let quorum = &one.quorum.0;
    let claim = Claim::new(Key::new("k").unwrap(), crate::WHOLE, Units::Exactly(crate::WHOLE)).unwrap();
    let asked = quorum.asked(&claim, &quorum.standings.propose(claim.id, 0).unwrap().unwrap());
    one.ways[2].once(Verb::Claim, Fault { before: LATE, ..Fault::default() });
    let mut replies = super::super::members::Replies::new();
    quorum.ask_to_grant(&replies, 2, &asked);
    assert!(replies.next().await.unwrap().1.is_err(), "the first copy is not answered in time");
    // The attempt is still open, so the keeper's repeat names the same ids. Its copy is granted, and given back.
    assert_eq!(one.quorum.claim(&claim).await.unwrap(), Answer::Busy);
    assert_eq!(set.tokens("k").await[2], None);
    tokio::time::sleep(LATE).await;
    assert_eq!(set.tokens("k").await[2], None, "a late copy of the claim left a hold behind");
}
