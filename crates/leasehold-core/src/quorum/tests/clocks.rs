//! Clients whose wall clocks differ: tokens rise, and the slower clock is served too.

use super::*;

/// Holds the lock for 2 ms and leaves it free for 1 ms, without end.
async fn hog(client: Client) {
    loop {
        let guard = client.mutex("k").acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn slower_clock_does_not_starve() {
    for ahead in [0, 5, 50, 5_000, 50_000] {
        let set = Set::of(3);
        let (slow, fast) = (set.seat().await, set.seat_ahead(Duration::from_millis(ahead)).await);
        let hogging = tokio::spawn(hog(fast.client));
        let started = tokio::time::Instant::now();
        for turn in 0..5 {
            // The other client has the lock by now.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let guard = slow.client.mutex("k").acquire_within(Duration::from_secs(30)).await.unwrap();
            let guard = guard.unwrap_or_else(|| panic!("turn {turn}, {ahead} ms ahead: 30 s in vain"));
            guard.release().await.unwrap();
        }
        hogging.abort();
        assert!(started.elapsed() < Duration::from_secs(30), "{ahead} ms ahead: {:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn members_that_disagree_about_the_last_token_do_not_fail_an_attempt() {
    let set = Set::of(3);
    let seat = set.seat().await;
    let now = seat.client.mutex("other").acquire().await.unwrap().token();
    for (memory, seconds) in set.memories.iter().zip([10, 20, 30]) {
        raise(memory, now + seconds * 1_000_000).await;
    }
    let guard = seat.client.mutex("k").try_acquire().await.unwrap().expect("the lock is free");
    assert!(guard.token() > now + 30_000_000);
}

#[tokio::test(start_paused = true)]
async fn token_far_ahead_of_the_clock_is_refused_with_an_error_that_names_the_clock() {
    let set = Set::of(3);
    let (wild, sane) = (set.seat_ahead(Duration::from_secs(7200)).await, set.seat().await);
    let guard = wild.client.mutex("k").acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let error = sane.client.mutex("k").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("clock"), "{error}");
    soon(async || set.tokens("k").await == [None; 3]).await;
    // Nothing was learned from it: other keys are served, and with tokens that follow the sane clock.
    let other = sane.client.mutex("other").acquire().await.unwrap();
    assert!(other.token() + 3_600_000_000 < token, "{} follows {token}", other.token());
}

const SECOND: Duration = Duration::from_secs(1);

/// Acquires the lock and releases it again. Returns the token.
async fn pass(seat: &Seat) -> u64 {
    let guard = seat.client.mutex("k").acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

#[tokio::test(start_paused = true)]
async fn lead_of_a_clock_that_was_set_right_fades() {
    let set = Set::of(3);
    let (right, wrong) = (SECOND * 10, SECOND * 69);
    let wall = set.wall_time(wrong);
    let (fast, other, slow) =
        (set.seat_with(wall.clone()).await, set.seat_ahead(right).await, set.seat().await);
    pass(&fast).await;
    let mut last = pass(&other).await;
    let error = slow.client.mutex("k").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("clock"), "{error}");
    wall.set_ahead(right);
    for round in 0..60 {
        tokio::time::sleep(SECOND * 10).await;
        // A client that has just started learns from the members what the others propose.
        let restarted = set.seat_ahead(right).await;
        for seat in [&fast, &other, &restarted] {
            let token = pass(seat).await;
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
        }
    }
    let token = pass(&slow).await;
    assert!(token > last, "{token} after {last}");
}

#[tokio::test(start_paused = true)]
async fn clock_that_swings_does_not_drive_tokens_ahead() {
    let set = Set::of(3);
    let (wall, swing) = (set.wall_time(Duration::ZERO), SECOND * 20);
    let (swinging, other) = (set.seat_with(wall.clone()).await, set.seat().await);
    let steady = set.wall_time(Duration::ZERO);
    let mut last = 0;
    for round in 0..20 {
        wall.set_ahead(if round % 2 == 0 { swing } else { Duration::ZERO });
        for seat in [&swinging, &other] {
            let token = pass(seat).await;
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
        }
        let ahead = Duration::from_micros(last.saturating_sub(steady.now().as_micros()));
        assert!(ahead <= swing + SECOND, "round {round}: tokens are {ahead:?} ahead");
        tokio::time::sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn client_whose_clock_was_set_back_by_hours_is_served_on_other_keys() {
    let set = Set::of(3);
    let wall = set.wall_time(SECOND * 7200);
    let seat = set.seat_with(wall.clone()).await;
    pass(&seat).await;
    wall.set_ahead(Duration::ZERO);
    let other = seat.client.mutex("other").acquire().await.unwrap();
    assert!(other.is_valid());
    let error = seat.client.mutex("k").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("clock"), "{error}");
}
