//! Who gathers, who is sent, and who hears what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;

/// What the server does with calls of several.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    Answers,
    Refuses,
    Breaks,
    ForgetsOne,
}

struct Inner {
    crowd: Crowd<Calls>,
    server: Server,
    /// Calls go on when they have one of these.
    passes: Semaphore,
    alone: AtomicUsize,
    /// What was asked together.
    together: Mutex<Vec<Vec<&'static str>>>,
}

#[derive(Clone)]
struct Calls(Arc<Inner>);

impl Calls {
    fn new(server: Server) -> Self {
        let (passes, together) = (Semaphore::new(0), Mutex::default());
        Self(Arc::new(Inner {
            crowd: Crowd::default(),
            server,
            passes,
            alone: AtomicUsize::new(0),
            together,
        }))
    }

    fn ask(&self, what: &'static str) -> JoinHandle<Result<&'static str>> {
        let calls = self.clone();
        tokio::spawn(async move { Crowd::ask(&calls, what, Instant::now() + LONG).await })
    }

    /// As many calls as go alone, none of which returns by itself.
    async fn few(&self) -> Vec<JoinHandle<Result<&'static str>>> {
        let few = (0..Self::FEW).map(|_| self.ask("one of few")).collect();
        settled().await;
        few
    }

    fn pass(&self, calls: usize) {
        self.0.passes.add_permits(calls);
    }

    fn alone(&self) -> usize {
        self.0.alone.load(Ordering::Relaxed)
    }

    fn together(&self) -> Vec<Vec<&'static str>> {
        self.0.together.lock().unwrap().clone()
    }
}

impl Caller for Calls {
    const STORE: &'static str = "test";
    const FEW: usize = 2;
    type Ask = &'static str;
    type Said = &'static str;
    type Kind = bool;

    fn crowd(&self) -> &Crowd<Self> {
        &self.0.crowd
    }

    fn kind(ask: &&'static str) -> bool {
        ask.starts_with("claim")
    }

    fn name(ask: &&'static str) -> String {
        (*ask).to_owned()
    }

    async fn alone(&self, ask: &'static str, _: Instant) -> Result<&'static str> {
        self.0.alone.fetch_add(1, Ordering::Relaxed);
        self.0.passes.acquire().await.unwrap().forget();
        Ok(ask)
    }

    async fn together(&self, asks: &[&'static str], _: Instant) -> Result<Vec<&'static str>> {
        self.0.together.lock().unwrap().push(asks.to_vec());
        self.0.passes.acquire().await.unwrap().forget();
        match self.0.server {
            Server::Answers => Ok(asks.to_vec()),
            Server::Refuses => Err(Error::new(ErrorKind::Unavailable, "a deadlock")),
            Server::Breaks => Err(Error::new(ErrorKind::Indeterminate, "a broken connection")),
            Server::ForgetsOne => Ok(asks[1..].to_vec()),
        }
    }
}

const LONG: Duration = Duration::from_secs(60);

/// Lets everybody go as far as they can.
async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn few_go_at_once_and_the_others_together_when_one_has_returned() {
    let calls = Calls::new(Server::Answers);
    let few = calls.few().await;
    let others = ["claim b", "release c", "claim a", "release a"].map(|ask| calls.ask(ask));
    settled().await;
    assert_eq!((calls.alone(), calls.together()), (2, vec![]));
    calls.pass(1);
    settled().await;
    assert_eq!(calls.together(), [["release a", "release c"], ["claim a", "claim b"]]);
    calls.pass(3);
    let said: Vec<_> = join_all(others).await.into_iter().map(|said| said.unwrap().unwrap()).collect();
    assert_eq!(said, ["claim b", "release c", "claim a", "release a"]);
    join_all(few).await;
    // Nobody is under way any more: the next one goes at once.
    calls.pass(1);
    assert_eq!(calls.ask("claim d").await.unwrap().unwrap(), "claim d");
    assert_eq!(calls.alone(), 3);
}

#[tokio::test(start_paused = true)]
async fn so_many_are_several_calls() {
    let calls = Calls::new(Server::Answers);
    let few = calls.few().await;
    let others: Vec<_> = (0..=2 * MOST).map(|_| calls.ask("claim")).collect();
    settled().await;
    calls.pass(10);
    for said in join_all(others.into_iter().chain(few)).await {
        said.unwrap().unwrap();
    }
    let many: Vec<_> = calls.together().iter().map(Vec::len).collect();
    // The last one is alone, so it is asked like that.
    assert_eq!((many, calls.alone()), (vec![MOST, MOST], 3));
}

#[tokio::test(start_paused = true)]
async fn who_gave_up_before_it_was_sent_is_not_sent() {
    let calls = Calls::new(Server::Answers);
    let _few = calls.few().await;
    let others = ["claim a", "claim b", "claim c"].map(|ask| calls.ask(ask));
    settled().await;
    others[1].abort();
    settled().await;
    calls.pass(1);
    settled().await;
    assert_eq!(calls.together(), [["claim a", "claim c"]]);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_callers_all_gave_up_lets_the_others_go() {
    let calls = Calls::new(Server::Answers);
    let few = calls.few().await;
    let others = ["claim a", "claim b"].map(|ask| calls.ask(ask));
    settled().await;
    for one in few {
        one.abort();
    }
    settled().await;
    assert_eq!(calls.together(), [["claim a", "claim b"]]);
    calls.pass(1);
    for said in join_all(others).await {
        said.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_long_enough_goes_though_nobody_has_returned() {
    let calls = Calls::new(Server::Answers);
    let _few = calls.few().await;
    let others = ["claim a", "claim b"].map(|ask| calls.ask(ask));
    sleep(OVERDUE / 2).await;
    assert_eq!(calls.together().len(), 0);
    sleep(OVERDUE).await;
    assert_eq!(calls.together(), [["claim a", "claim b"]]);
    drop(others);
}

#[tokio::test(start_paused = true)]
async fn calls_that_do_not_return_keep_nobody_waiting() {
    let calls = Calls::new(Server::Answers);
    let _few = calls.few().await;
    sleep(OVERDUE).await;
    let _next = calls.ask("claim a");
    settled().await;
    assert_eq!((calls.alone(), calls.together()), (3, vec![]));
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_as_a_whole_is_asked_one_by_one() {
    let calls = Calls::new(Server::Refuses);
    let few = calls.few().await;
    let others = ["claim a", "claim b", "claim c"].map(|ask| calls.ask(ask));
    settled().await;
    calls.pass(10);
    let said: Vec<_> = join_all(others).await.into_iter().map(|said| said.unwrap().unwrap()).collect();
    assert_eq!(said, ["claim a", "claim b", "claim c"]);
    assert_eq!((calls.alone(), calls.together().len()), (5, 1));
    join_all(few).await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_knows_nobody_knows_for_each_and_it_is_not_repeated() {
    for server in [Server::Breaks, Server::ForgetsOne] {
        let calls = Calls::new(server);
        let few = calls.few().await;
        let others = ["claim a", "claim b", "claim c"].map(|ask| calls.ask(ask));
        settled().await;
        calls.pass(10);
        for said in join_all(others).await {
            assert_eq!(said.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate, "{server:?}");
        }
        assert_eq!(calls.alone(), 2, "{server:?}");
        join_all(few).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_hears_nothing_is_told_in_time() {
    let calls = Calls::new(Server::Answers);
    let _few = calls.few().await;
    let began = Instant::now();
    let said = calls.ask("claim a").await.unwrap();
    assert_eq!(said.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(began.elapsed(), LONG);
}

#[test]
fn a_runtime_that_is_gone_takes_its_calls_along_and_nobody_waits_for_them() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (calls, gone, stays) = (Calls::new(Server::Answers), runtime(), runtime());
    gone.block_on(calls.few());
    let mut waits = None;
    stays.block_on(async {
        waits = Some(calls.ask("claim a"));
        settled().await;
    });
    // What was under way ends here, and sends off who waits: on a runtime that is gone.
    drop(gone);
    let said = stays.block_on(waits.expect("it was asked")).unwrap();
    assert_eq!(said.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(calls.0.crowd.lock().under_way, []);
    calls.pass(1);
    let said = stays.block_on(async { calls.ask("claim b").await });
    assert_eq!(said.unwrap().unwrap(), "claim b");
}
