//! `leasehold completions` and `man`: generated from the same definitions as the parser.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Exit, Failure};

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    write(&script)
}

/// Prints the manual page, subcommands included.
pub(crate) fn man() -> Result<Exit, Failure> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands() {
        let name = subcommand.get_name().to_uppercase();
        writeln!(page, ".SH \"LEASEHOLD {name}\"")?;
        let man = clap_mangen::Man::new(subcommand.clone());
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    write(&page)
}

fn write(bytes: &[u8]) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())?;
    Ok(Exit::Success)
}
