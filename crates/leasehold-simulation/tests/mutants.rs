//! Do the tests bite? One planted bug at a time, and the case or the schedule that catches it.
//!
//! A catch counts only when the same case or schedule passes without the bug. Prints the whole table at its end:
//! `cargo test -p leasehold-simulation --features mutants --test mutants`.

#![allow(clippy::print_stdout, reason = "a table for people")]

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_conformance::mutants::{Bug, CATCHERS, complaint};
use leasehold_core::mutant::Mutant;
use leasehold_core::{Client, Key, Memory, Quorum, Store};
use leasehold_simulation::planted::{FINDINGS, find};
use libtest_mimic::{Arguments, Failed, Trial};

/// How many schedules a bug may survive.
const SCHEDULES: u64 = 600;

/// Bugs of the runtime that are not the simulation's to catch, but a case's, on the store in memory.
const CASES: &[(Mutant, &str)] = &[
    (Mutant::LateReplyUndoesUpgrade, "outages::a_late_renewal_does_not_undo_an_upgrade"),
    (Mutant::UnpolledHeirHolds, "polling::an_unpolled_heir_passes_the_lock_on"),
    (Mutant::ParkedForEver, "polling::tasks_parked_behind_an_unpolled_release_get_the_lock"),
    (Mutant::LossIsNotFinal, "guards::a_renewal_that_is_answered_after_the_deadline_revives_nothing"),
    (Mutant::JoinsADyingHold, "owner::a_hold_that_is_being_released_is_not_joined"),
    (Mutant::MultiInCallersOrder, "multi::all_are_held_together"),
    (Mutant::MultiSkipsABusyPart, "multi::a_busy_part_leaves_the_others_free"),
    (Mutant::LatchPassesWhenGone, "latch::deleting_ends_waiters_with_an_error"),
    (Mutant::CrashForgetsAtLeast, "job_crashes::at_least_survives_a_crash"),
];

/// Seeds to begin with, for bugs that few schedules show.
const SEEDS: &[(Mutant, u64)] = &[
    (Mutant::GrantExtendsSession, 200),
    (Mutant::UnpolledClaimHolds, 1195),
    (Mutant::UnpolledClaimHolds, 1299),
    (Mutant::QuorumReusesIds, 167),
];

/// Bugs of the quorum, which is judged by what is left on its members.
const QUORUM: &[Mutant] = &[Mutant::QuorumKeepsAMinority, Mutant::HalfIsAMajority];

/// What caught a bug, and what it said.
struct Catch {
    by: String,
    said: String,
}

/// A bug that was caught, and how long that took.
struct Row {
    bug: String,
    catch: Catch,
    took: Duration,
}

/// The bugs that were caught.
type Table = Arc<Mutex<Vec<Row>>>;

fn main() -> ExitCode {
    let table = Table::default();
    let stores = CATCHERS.iter().map(|&(bug, case)| {
        trial(format!("store::{bug:?}"), &table, move || in_case(case, || complaint(Some(bug), case)))
    });
    let runtime = Mutant::ALL.iter().map(|&mutant| {
        let case = CASES.iter().find(|(caught, _)| *caught == mutant).map(|(_, case)| *case);
        trial(format!("runtime::{mutant:?}"), &table, move || match case {
            Some(case) => in_case(case, || mutant.plant(|| complaint(None, case))),
            None if QUORUM.contains(&mutant) => on_a_minority(mutant),
            None => in_a_schedule(mutant),
        })
    });
    let complete = [
        Trial::test("every_broken_store_has_a_case", every_broken_store_has_a_case),
        Trial::test("every_finding_has_a_seed", every_finding_has_a_seed),
    ];
    // One after the other: a planted bug is in the whole process.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let conclusion = libtest_mimic::run(&arguments, stores.chain(runtime).chain(complete).collect());
    for Row { bug, catch, took } in table.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("{bug:<36} {:>6.2} s  {:<73} {}", took.as_secs_f64(), catch.by, catch.said);
    }
    conclusion.exit_code()
}

fn trial(bug: String, table: &Table, catch: impl FnOnce() -> Option<Catch> + Send + 'static) -> Trial {
    let (name, table) = (bug.clone(), table.clone());
    Trial::test(name, move || {
        let start = Instant::now();
        let catch =
            catch().ok_or_else(|| Failed::from("it survives: nothing notices it, or not for its sake"))?;
        let took = start.elapsed();
        table.lock().unwrap_or_else(PoisonError::into_inner).push(Row { bug, catch, took });
        Ok(())
    })
}

/// The complaint of a case with the bug, if it has none without.
fn in_case(case: &str, with_bug: impl FnOnce() -> Option<String>) -> Option<Catch> {
    let complaint_with = with_bug()?;
    // Where a panic was is the first line, and what it said the others.
    let lines = complaint_with.lines().skip_while(|line| line.starts_with("panicked at")).map(str::trim);
    let said = lines.collect::<Vec<_>>().join(" ").chars().take(100).collect();
    complaint(None, case).is_none().then(|| Catch { by: case.to_owned(), said })
}

/// The violation of the first schedule that goes wrong with the bug, and not without.
fn in_a_schedule(mutant: Mutant) -> Option<Catch> {
    let known = SEEDS.iter().filter(|(shown, _)| *shown == mutant).map(|(_, seed)| *seed);
    let found = find(mutant, known.chain(1..=SCHEDULES))?;
    let kind = if found.is_quorum { "quorum seed" } else { "seed" };
    Some(Catch { by: format!("{kind} {}", found.seed), said: found.violation })
}

/// What goes wrong when one of three members is all that a quorum can have.
fn on_a_minority(mutant: Mutant) -> Option<Catch> {
    let story = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime
            .expect("it needs nothing from the system")
            .block_on(a_minority())
            .expect("memory does not fail")
    };
    let said = mutant.plant(story)?.to_owned();
    story().is_none().then(|| Catch { by: "a quorum of three, two of them taken".to_owned(), said })
}

async fn a_minority() -> leasehold_core::Result<Option<&'static str>> {
    let members = [Memory::new(), Memory::new(), Memory::new()];
    let mut taken = Vec::new();
    for member in &members[..2] {
        taken.push(Client::new(member.clone()).await?.mutex("k").acquire().await?);
    }
    let quorum = Quorum::builder().members(members.clone()).without_quarantine().build()?;
    if Client::new(quorum).await?.mutex("k").try_acquire().await?.is_some() {
        return Ok(Some("one of three is enough for it"));
    }
    Ok(members[2].inspect(&Key::new("k")?).await?.map(|_| "it keeps what one of three granted"))
}

fn every_broken_store_has_a_case() -> Result<(), Failed> {
    let has_none = Bug::ALL.iter().find(|bug| !CATCHERS.iter().any(|(caught, _)| caught == *bug));
    has_none.map_or(Ok(()), |bug| Err(format!("{bug:?} has none").into()))
}

fn every_finding_has_a_seed() -> Result<(), Failed> {
    let by_case = FINDINGS.iter().find(|(_, mutant)| CASES.iter().any(|(caught, _)| caught == mutant));
    by_case.map_or(Ok(()), |(finding, _)| Err(format!("only a case finds {finding}").into()))
}
