//! Requests of many tasks in one call.

use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_core::{Answer, Claim, Released, Units};
use leasehold_servers::redis::Redis;

use super::*;
use crate::ask::Fences;
use crate::reply;

/// More than go alone, and more than go in one call.
const MANY: usize = 100;

fn claim_on(name: &str) -> Claim {
    Claim::new(Key::new(name).unwrap(), 1, Units::Exactly(1)).unwrap()
}

fn fresh() -> Vec<Claim> {
    (0..MANY).map(|n| claim_on(&format!("lock {n}"))).collect()
}

async fn ask(link: &Link, claim: &Claim) -> Result<Answer> {
    reply::claimed(link.call(Fences::One.claim(claim, 0)?).await?, claim)
}

async fn give(link: &Link, claim: &Claim) -> Result<Released> {
    reply::released(link.call(Fences::One.release(claim, None)).await?, &claim.key)
}

async fn ask_all(link: &Link, claims: &[Claim]) -> Vec<Result<Answer>> {
    join_all(claims.iter().map(|claim| ask(link, claim))).await
}

/// A server that has a fence, and knows the scripts.
async fn ready() -> (Redis, Link) {
    let server = Redis::start();
    // However busy the machine is.
    let target = Target::parse(&format!("{}?timeout=30s", server.url())).unwrap();
    let link = Link::new(target, Secret::random().unwrap());
    for _ in 0..2 {
        let claims = fresh();
        assert!(ask_all(&link, &claims).await.iter().all(is_held));
        join_all(claims.iter().map(|claim| give(&link, claim))).await;
    }
    (server, link)
}

fn calls(server: &Redis) -> u64 {
    let said = server.cli(&["info", "commandstats"]);
    let calls = said.split_once("cmdstat_evalsha:calls=").map_or("0", |(_, rest)| rest);
    calls.split(',').next().and_then(|n| n.parse().ok()).unwrap()
}

fn is_held(answer: &Result<Answer>) -> bool {
    matches!(answer, Ok(Answer::Granted(_)))
}

#[tokio::test]
async fn requests_that_come_together_are_few_calls_and_have_numbers_of_their_own() {
    let (server, link) = ready().await;
    let (claims, before) = (fresh(), calls(&server));
    let mut tokens: Vec<u64> = Vec::new();
    for answer in ask_all(&link, &claims).await {
        let Ok(Answer::Granted(grant)) = answer else { panic!("{answer:?}") };
        tokens.push(grant.token);
    }
    // Four go alone, the others in two calls.
    assert_eq!(calls(&server) - before, 6);
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), MANY);
    let last = server.cli(&["getrange", "leasehold.fence", "0", "15"]);
    assert!(last.parse::<u64>().is_ok_and(|last| last >= tokens[MANY - 1]), "{last}");
    for found in join_all(claims.iter().map(|claim| give(&link, claim))).await {
        assert_eq!(found.unwrap(), Released::Held);
    }
    assert_eq!(calls(&server) - before, 12);
    assert_eq!(server.cli(&["keys", "leasehold{*"]), "");
}

#[tokio::test]
async fn each_of_many_has_its_own_answer() {
    let (server, link) = ready().await;
    let mut claims = fresh();
    // One waits behind another's, one finds something that is not ours.
    ask(&link, &claim_on("lock 50")).await.unwrap();
    server.cli(&["rpush", "leasehold{:lock 60}", "x"]);
    // One is asked twice.
    claims[70] = claims[71].clone();
    let answers = ask_all(&link, &claims).await;
    assert!(matches!(answers[50], Ok(Answer::Waiting(_))), "{:?}", answers[50]);
    assert_eq!(answers[60].as_ref().unwrap_err().kind(), ErrorKind::Conflict);
    let others = (0..MANY).filter(|n| ![50, 60].contains(n));
    assert_eq!(others.filter(|n| !is_held(&answers[*n])).count(), 0);
    // One was never there.
    claims[80] = claim_on("lock 80");
    let found = join_all(claims.iter().map(|claim| give(&link, claim))).await;
    assert_eq!(
        (*found[50].as_ref().unwrap(), *found[80].as_ref().unwrap()),
        (Released::Waiting, Released::Gone)
    );
    assert_eq!(found[60].as_ref().unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn many_are_granted_by_a_server_that_forgot_its_scripts() {
    let (server, link) = ready().await;
    server.cli(&["script", "flush"]);
    assert!(ask_all(&link, &fresh()).await.iter().all(is_held));
}

#[tokio::test]
async fn many_are_given_back_to_a_server_without_memory_which_grants_none() {
    let (server, link) = ready().await;
    let claims = fresh();
    assert!(ask_all(&link, &claims).await.iter().all(is_held));
    server.cli(&["config", "set", "maxmemory", "1kb"]);
    let others: Vec<_> = (0..MANY).map(|n| claim_on(&format!("other {n}"))).collect();
    for answer in ask_all(&link, &others).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    for found in join_all(claims.iter().map(|claim| give(&link, claim))).await {
        assert_eq!(found.unwrap(), Released::Held);
    }
}

#[tokio::test]
async fn a_silent_server_leaves_all_of_many_in_doubt_and_in_time() {
    let (mut server, _) = ready().await;
    let link = link(&server.url());
    open(&link).await.unwrap();
    server.process().freeze();
    let since = Instant::now();
    for answer in ask_all(&link, &fresh()).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Indeterminate);
    }
    // The time of one call, and room for a busy machine.
    assert!(since.elapsed() < CALL + Duration::from_secs(5), "{:?}", since.elapsed());
    server.process().thaw();
}

#[tokio::test]
async fn who_leaves_before_the_others_go_is_not_sent() {
    let (server, link) = ready().await;
    let claims = fresh();
    {
        let mut asking: Vec<_> = claims.iter().map(|claim| Box::pin(ask(&link, claim))).collect();
        for asking in &mut asking {
            assert!(asking.as_mut().now_or_never().is_none());
        }
        // The first of them fetches the others: it must not go before them.
        while asking.pop().is_some() {}
    }
    // Whatever was sent before this is done: four that went alone, and the one that was to fetch the others.
    ask(&link, &claim_on("last")).await.unwrap();
    let locks = server.cli(&["keys", "leasehold{:lock*"]);
    assert!(locks.lines().filter(|line| !line.is_empty()).count() <= 5, "{locks}");
}

#[test]
fn many_calls_after_their_runtime_has_ended_are_unavailable() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_server, link) = runtime().block_on(ready());
    for answer in runtime().block_on(ask_all(&link, &fresh())) {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn a_future_that_nobody_polls_any_more_holds_up_nobody() {
    let (_server, link) = ready().await;
    let (some, others) = (fresh(), fresh());
    // Four go alone, and the next one is to fetch who comes after it.
    let mut idle: Vec<_> = some[..5].iter().map(|claim| Box::pin(ask(&link, claim))).collect();
    for asking in &mut idle {
        assert!(asking.as_mut().now_or_never().is_none());
    }
    let answers = timeout(SOON, ask_all(&link, &others[5..])).await.expect("nobody waits for ever");
    assert!(answers.iter().all(is_held));
}
