//! A disk that is full, in all modes. Ignored where this user may not mount one.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[path = "failures/scene.rs"]
#[allow(dead_code, reason = "this needs some of it")]
mod scene;

use std::process::ExitCode;

use leasehold_conformance::trouble::*;
use leasehold_core::ErrorKind;
use leasehold_servers::mariadb::MariaDb;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use scene::{Site, store};
use tokio::runtime::Builder;

const MODES: [&str; 3] = ["lease", "advisory", "rowlock"];
const MEGABYTES: u32 = 150;

fn main() -> ExitCode {
    let name = "where_tables_cannot_grow_a_claim_is_refused_and_who_holds_goes_on";
    let trial = Trial::ignorable_test(name, || {
        let Some(server) = MariaDb::on_a_small_disk(MEGABYTES) else {
            return Ok(Completion::ignored_with("this user may mount nothing"));
        };
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failed::from)?;
        runtime.block_on(tables_cannot_grow(&Site::of(server)));
        Ok(Completion::Completed)
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

async fn tables_cannot_grow(site: &Site) {
    for mode in MODES {
        let url = format!("{}?mode={mode}", site.server.url());
        let [holder, other] = [client(store(&url), LONG).await, client(store(&url), LONG).await];
        let witness = Witness::default();
        let guard = acquire(&holder).await;
        witness.granted(&guard);
        site.server.fill_disk();
        let refused = fill_tables(&other).await;
        if let Some(error) = &refused {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode}: {error}");
            assert!(error.to_string().contains("disk is full"), "{mode}: {error}");
        }
        // Named locks are not stored at all, and rows of names are small.
        assert!(refused.is_some() || mode != "lease", "there was room for everything");
        still_held(&guard, LONG).await;
        guard.release().await.expect("it needs no room");
        site.server.free_disk();
        goes_on(&other, &witness).await;
        nothing_is_left(|| site.left(), [holder, other]).await;
    }
}
