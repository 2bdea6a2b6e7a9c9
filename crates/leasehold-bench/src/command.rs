//! The command line of a bench: how much, in which form, and which rows.

use std::io::Write;
use std::process::ExitCode;

use crate::contest::Effort;
use crate::subject::Outcome;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How much to measure.
    pub effort: Effort,
    /// Whether machines will read it.
    pub form: Form,
    /// Which of the bench's rows.
    pub rows: Vec<&'static str>,
}

/// Who will read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table.
    People,
    /// JSON.
    Machines,
}

/// Reads the command line of the bench `name` with these rows and runs it on a runtime of its own, with `full` effort unless
/// it says `--quick`.
///
/// # Errors
/// What `run` says.
pub fn main<F: Future<Output = Outcome<()>>>(
    name: &str,
    rows: &[&'static str],
    full: Effort,
    run: impl FnOnce(Asked) -> F,
) -> Outcome<ExitCode> {
    let mut asked = Asked { effort: full, form: Form::People, rows: Vec::new() };
    for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        match argument.as_str() {
            "--quick" => asked.effort = Effort::QUICK,
            "--json" => asked.form = Form::Machines,
            other => match rows.iter().find(|row| **row == other) {
                Some(row) => asked.rows.push(row),
                None => {
                    let rows = rows.join(" ");
                    let usage = "[-- [--quick] [--json] [ROW...]]";
                    writeln!(
                        std::io::stderr(),
                        "usage: cargo bench -p leasehold-bench --bench {name} {usage}\nrows: all, or some of {rows}"
                    )?;
                    return Ok(ExitCode::from(64));
                }
            },
        }
    }
    if asked.rows.is_empty() {
        asked.rows.extend(rows);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(asked))?;
    Ok(ExitCode::SUCCESS)
}
