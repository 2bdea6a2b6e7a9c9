//! `cargo xtask test`: provides the servers, builds the tests, runs a tier of them and judges the result.

use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::failures::Failure;
use crate::options::Options;
use crate::programs::{self, Program};
use crate::runner::{self, Outcome};
use crate::summary::{self, Line, Summary};
use crate::tally::Tally;
use crate::tiers::Tier;
use crate::unsteady::Unsteady;
use crate::{servers, versions};

/// Runs the tests. The last line is the tally; the run fails if a test failed or if none ran.
pub(crate) fn run(options: &Options) -> Result<ExitCode, String> {
    let start = Instant::now();
    let unsteady = Unsteady::read()?;
    servers::provide(options)?;
    let mut programs = select(options)?;
    let commit = summary::commit();
    let mut summary = (options.tier == Tier::Full).then(Summary::read);
    let mut tally = Tally::default();
    if let Some(summary) = &mut summary {
        if options.selection.is_everything() {
            // Programs that no longer exist leave the summary.
            summary.0.retain(|line| programs.iter().any(|program| program.name() == line.program));
        }
        if options.resume || options.failed {
            tally = summary.resume(&mut programs, (!options.failed).then_some(commit.as_str()));
            println!("kept from an earlier run: {tally}; programs to run: {}", programs.len());
        }
    }

    let missing = options.allow_missing.join(",");
    let prepare = |command: &mut Command| {
        command.envs(options.tier.environment().iter().copied());
        if !missing.is_empty() {
            command.env("LEASEHOLD_ALLOW_MISSING", &missing);
        }
    };
    let (mut failed, mut died) = (Vec::new(), Vec::new());
    runner::run(programs, prepare, &mut |outcome: Outcome| {
        tally.add(&outcome.tally);
        if outcome.tally.failed > 0 {
            println!("{}", outcome.output);
        }
        let failures = Failure::find(&outcome.output);
        if outcome.is_timeout || (failures.is_empty() && outcome.tally.failed > 0) {
            died.push(format!("{}: {}", outcome.program.name(), outcome.ending()));
        }
        if let Some(summary) = &mut summary {
            let Outcome { program, tally, seconds, .. } = &outcome;
            let (program, commit) = (program.name(), commit.clone());
            summary.record(Line { program, tally: *tally, seconds: *seconds, commit });
            if let Err(problem) = summary.write() {
                eprintln!("xtask: {problem}");
            }
        }
        failed.extend(failures.into_iter().map(|failure| (outcome.program.clone(), failure)));
    });
    died.iter().for_each(|died| println!("\nFAILED without naming a test: {died}"));
    let forgiven = rerun(&failed, prepare, options.tier, &unsteady);
    tally.failed -= forgiven;
    tally.passed += forgiven;
    if summary.is_some() {
        println!("wrote {}: commit it", summary::FILE);
    }
    println!("{} min", start.elapsed().as_secs().div_ceil(60));
    println!("{tally}");
    Ok(if tally.failed > 0 || tally.passed == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Builds and lists the programs of the tier, the longest first, so that no lane is left with a long one at the end.
fn select(options: &Options) -> Result<Vec<Program>, String> {
    let Options { selection, tier, .. } = options;
    let mut programs = programs::build(&selection.cargo_words(*tier))?;
    programs.retain(|program| selection.wants(&program.package, &program.target, *tier));
    if programs.is_empty() {
        return Err("--quick runs no test of these packages: leave it out".to_owned());
    }
    let is_whole = *tier > Tier::Quick && selection.is_everything();
    if *tier == Tier::Full {
        versions::add(&mut programs, &options.allow_missing);
    }
    if is_whole {
        programs.push(Program::documentation());
    }
    let last = Summary::read();
    let seconds = |program: &Program| last.get(&program.name()).map_or(0, |line| line.seconds);
    programs.sort_by_key(|program| std::cmp::Reverse(seconds(program)));
    if is_whole {
        let simulation = Program::simulation(*tier);
        match tier {
            Tier::Full => programs.insert(0, simulation),
            // It takes two minutes on all cores. In CI a release build beside the tests would block its start for longer.
            Tier::Quick | Tier::Standard => programs.push(simulation),
        }
    }
    Ok(programs)
}

/// Names every failure again, reruns each alone, and returns how many of them do not fail the run.
///
/// A test that fails beside others and passes alone is a bug in the test or in the product. It fails the run if it is
/// listed as fixed or if the tier is the full one; otherwise it is reported as unsteady.
fn rerun(
    failed: &[(Program, Failure)],
    prepare: impl Fn(&mut Command),
    tier: Tier,
    unsteady: &Unsteady,
) -> u64 {
    /// More failures than this have a common cause.
    const MOST: usize = 10;
    let mut forgiven = 0;
    for (program, failure) in failed {
        println!("\nFAILED in {}: {failure}", program.name());
        let Some(mut command) = program.command_for(&failure.test) else { continue };
        if failed.len() > MOST || failure.is_safety_violation() {
            continue;
        }
        prepare(&mut command);
        let again = runner::listen(program.clone(), command);
        // A program that does not know the name succeeds without running anything.
        if again.tally.passed != 1 || again.tally.failed > 0 {
            Failure::find(&again.output).iter().for_each(|again| println!("    and alone: {again}"));
            if again.is_timeout {
                println!("    and alone: {}", again.ending());
            }
        } else if unsteady.has(&program.package, &failure.test) {
            println!("    It passed alone, but it is listed as fixed in docs/unsteady-tests.md.");
        } else if tier == Tier::Full {
            println!(
                "    UNSTEADY: it passed alone. Find the cause, fix it, and list it in docs/unsteady-tests.md."
            );
        } else {
            println!("    UNSTEADY: it passed alone.");
            forgiven += 1;
        }
    }
    forgiven
}
