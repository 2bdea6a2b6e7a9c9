//! `leasehold completions` and `man`: generated from the same definitions as the parser.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{self, Exit, Failure};
use crate::output::print_bytes;

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    print_bytes(&script)?;
    Ok(Exit::Success)
}

/// Prints the manual page of the command or of one of its subcommands.
pub(crate) fn man(subcommand: Option<&str>) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    // Gives the subcommands their full names and the options that all have.
    command.build();
    let command = subcommand.and_then(|name| command.find_subcommand(name)).unwrap_or(&command);
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    for (title, table) in [("EXIT STATUS", exit::STATUS), ("ENVIRONMENT", exit::ENVIRONMENT)] {
        write!(page, ".SH \"{title}\"\n.nf\n{}.fi\n", table.replace('-', "\\-"))?;
    }
    print_bytes(&page)?;
    Ok(Exit::Success)
}
