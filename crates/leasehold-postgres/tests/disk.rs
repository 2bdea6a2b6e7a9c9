//! A disk that is full, in all modes. Ignored where this user may not mount one.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[path = "failures/scene.rs"]
#[allow(dead_code, reason = "these need some of it")]
mod scene;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold_core::{Client, ErrorKind, Guard};
use leasehold_servers::postgres::Postgres;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use scene::*;
use tokio::runtime::Builder;

const MODES: [&str; 3] = ["lease", "advisory", "rowlock"];
/// Ends a hang.
const SOON: Duration = Duration::from_secs(60);
const MEGABYTES: u32 = 48;

fn main() -> ExitCode {
    let trials = vec![
        Trial::ignorable_test("where_tables_cannot_grow_a_claim_is_refused_and_who_holds_goes_on", || {
            on_a_small_disk(tables_cannot_grow)
        }),
        Trial::ignorable_test("where_the_log_cannot_grow_the_server_fails_and_nobody_holds_twice", || {
            on_a_small_disk(log_cannot_grow)
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn on_a_small_disk(test: impl AsyncFnOnce(Postgres)) -> Result<Completion, Failed> {
    let Some(server) = Postgres::on_a_small_disk(MEGABYTES) else {
        return Ok(Completion::ignored_with("this user may mount nothing"));
    };
    Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(test(server));
    Ok(Completion::Completed)
}

/// Who holds, and somebody else.
struct Pair {
    holder: Client,
    other: Client,
    witness: Witness,
}

impl Pair {
    async fn new(server: &Postgres, mode: &str) -> (Self, Guard) {
        let url = format!("{}?mode={mode}", server.url());
        let (holder, other, witness) = (client(&url).await, client(&url).await, Witness::default());
        let guard = acquire(&holder).await;
        witness.granted(&guard);
        (Self { holder, other, witness }, guard)
    }

    /// There is room again: everything goes on, and nothing stays.
    async fn goes_on(self, server: &Postgres) {
        goes_on(&self.other, &self.witness).await;
        nothing_is_left(server, [self.holder, self.other]).await;
    }
}

/// Something for the server's log, and for nothing else.
const LOGGED: &str = "SELECT pg_logical_emit_message(false, 'test', repeat('x', 500000))";

async fn tables_cannot_grow(server: Postgres) {
    // Segments that are used again: the log has room, whatever happens to the tables.
    for _ in 0..10 {
        server.sql(LOGGED);
    }
    server.sql("CHECKPOINT");
    for mode in MODES {
        let (pair, guard) = Pair::new(&server, mode).await;
        server.fill_disk();
        let error = fill_tables(&pair.other).await;
        if let Some(error) = &error {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode}: {error}");
            assert!(error.to_string().contains("disk is full"), "{mode}: {error}");
        }
        // Advisory locks are not stored at all.
        assert!(error.is_some() || mode != "lease", "there was room for everything");
        still_held(&guard, LEASE).await;
        guard.release().await.expect("it needs no room");
        server.free_disk();
        pair.goes_on(&server).await;
    }
}

async fn log_cannot_grow(mut server: Postgres) {
    for mode in MODES {
        let (pair, guard) = Pair::new(&server, mode).await;
        server.fill_disk();
        fill_log(&server).await;
        let refused = pair.other.mutex("another").try_acquire().await.expect_err("nothing can be written");
        assert!(refused.is_retryable(), "{mode}: {refused}");
        server.free_disk();
        server.restart();
        if mode != "lease" {
            // Its connection ended with the server.
            lost_in_time(&guard).await;
        }
        drop(guard);
        pair.goes_on(&server).await;
    }
}

/// Writes to the log until the server fails.
async fn fill_log(server: &Postgres) {
    let end = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < end, "there is always room for more");
        let Ok((client, moves)) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await else {
            return;
        };
        let moves = tokio::spawn(moves);
        let said = client.batch_execute(LOGGED).await;
        drop(client);
        let _ = moves.await;
        if said.is_err() {
            return;
        }
    }
}
