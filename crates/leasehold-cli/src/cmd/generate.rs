//! `leasehold completions` and `man`: generated from the same definitions as the parser.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{self, Exit, Failure};
use crate::output::{Plain, print_bytes};

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    print_bytes(&script)?;
    Ok(Exit::Success)
}

/// Prints the manual page of the command or of one of its subcommands, named by its words.
pub(crate) fn man(words: &[String]) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    // Gives the subcommands their full names and the options that all have.
    command.build();
    let page_of = words.iter().try_fold(&command, |command, word| command.find_subcommand(word));
    let command = page_of.ok_or_else(|| {
        let message = format!("there is no command \"{}\": see leasehold --help", Plain(&words.join(" ")));
        Failure::new(Exit::Usage, message)
    })?;
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
