//! Members that are restarted and have forgotten everything.

use super::server::Server;
use super::*;

const MAX_LEASE: Duration = Duration::from_secs(10);

/// Three members that are older than `MAX_LEASE`, and the clock of all.
async fn servers() -> (Vec<Server>, Arc<TestClock>) {
    let clock = Arc::new(TestClock::new());
    let servers = (0..3).map(|_| Server::new(clock.clone())).collect();
    tokio::time::sleep(MAX_LEASE).await;
    (servers, clock)
}

async fn connect(builder: crate::QuorumBuilder, servers: &[Server], clock: &Arc<TestClock>) -> Client {
    let quorum = builder.members(servers.iter().cloned()).max_lease(MAX_LEASE).build().unwrap();
    let client = Client::builder().clock(clock.clone()).defaults(Options::new().lease(LEASE));
    client.connect(quorum).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn members_restarted_one_by_one_keep_the_hold() {
    let (servers, clock) = servers().await;
    let holder = connect(Quorum::builder(), &servers, &clock).await;
    let other = connect(Quorum::builder(), &servers, &clock).await;
    let guard = holder.mutex("k").acquire().await.unwrap();
    for (n, server) in servers.iter().enumerate() {
        server.restart();
        // The member may vote again, and then one renewal has claimed the lock again there.
        tokio::time::sleep(MAX_LEASE + LEASE / 3).await;
        let shown = server.inspect(&Key::new("k").unwrap()).await.unwrap();
        assert_eq!(shown.map(|shown| shown.holders[0].token), Some(guard.token()), "member {n}");
        assert!(guard.is_valid(), "after the restart of member {n}");
        assert!(other.mutex("k").try_acquire().await.unwrap().is_none(), "after the restart of member {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn members_restarted_in_quick_succession_end_the_hold_without_a_second_holder() {
    let (servers, clock) = servers().await;
    let holder = connect(Quorum::builder(), &servers, &clock).await;
    let other = connect(Quorum::builder(), &servers, &clock).await;
    let guard = holder.mutex("k").acquire().await.unwrap();
    servers[0].restart();
    servers[1].restart();
    let error = other.mutex("k").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("too young"), "{error}");
    assert_eq!(guard.lost().await, Loss::Gone);
    tokio::time::sleep(MAX_LEASE).await;
    let next = other.mutex("k").acquire().await.unwrap();
    assert!(next.token() > guard.token());
}

/// This is what the documentation warns of.
#[tokio::test(start_paused = true)]
async fn restarted_members_without_quarantine_grant_twice() {
    let (servers, clock) = servers().await;
    let holder = connect(Quorum::builder().without_quarantine(), &servers, &clock).await;
    let other = connect(Quorum::builder().without_quarantine(), &servers, &clock).await;
    let first = holder.mutex("k").acquire().await.unwrap();
    servers[0].restart();
    servers[1].restart();
    let second =
        other.mutex("k").try_acquire().await.unwrap().expect("two members have forgotten the holder");
    assert!(first.is_valid() && second.is_valid());
    assert!(second.token() > first.token());
    assert_eq!(first.lost().await, Loss::Gone);
}

#[tokio::test(start_paused = true)]
async fn first_use_of_a_quorum_waits_until_its_members_may_vote() {
    let clock = Arc::new(TestClock::new());
    let servers: Vec<_> = (0..3).map(|_| Server::new(clock.clone())).collect();
    let client = connect(Quorum::builder(), &servers, &clock).await;
    let started = tokio::time::Instant::now();
    let too_short = client.mutex("k").acquire_within(MAX_LEASE / 2).await.unwrap_err();
    assert_eq!(too_short.kind(), ErrorKind::Unavailable, "{too_short}");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    let text = too_short.to_string();
    assert_eq!(text.matches("too young").count(), 1, "{text}");
    assert!(
        text.contains("member 1, member 2, member 3: ") && text.contains("counting again in 10"),
        "{text}"
    );
    let (limited, unlimited) = (client.mutex("a"), client.mutex("b"));
    let (limited, unlimited) = tokio::join!(limited.acquire_within(MAX_LEASE * 2), unlimited.acquire());
    assert!(limited.unwrap().is_some() && unlimited.unwrap().is_valid());
    assert!(started.elapsed() < MAX_LEASE + Duration::from_secs(1), "{:?}", started.elapsed());
}
