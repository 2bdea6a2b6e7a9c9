//! What can be typed: clap definitions and nothing else. `settings` checks what belongs together.

mod hold;
mod latch;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use leasehold::Key;

pub(crate) use self::hold::{ElectArgs, HoldArgs, RunArgs, WorkArgs};
pub(crate) use self::latch::{LatchArgs, LatchVerb};
use crate::exit;
use crate::output::Remarks;

/// Run programs under a distributed lock, and see who holds what.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = exit::help(), disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Where the locks are, such as sqlite:///path/locks.db; default: a file in your own state directory
    // The value is kept out of the help: it may have a password in it. Checked later for the same reason.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true,
        display_order = 100
    )]
    pub(crate) store: Option<String>,
    /// Say on stderr which store is used and what happens
    #[arg(short, long, global = true, display_order = 101)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program while holding a lock
    #[command(after_help = exit::help())]
    Run(RunArgs),
    /// Run a program while leading an election
    #[command(after_help = exit::help())]
    Elect(ElectArgs),
    /// Wait for a number of things to happen
    #[command(subcommand, disable_help_subcommand = true)]
    Latch(LatchVerb),
    /// List the locks in use
    List(ListArgs),
    /// Show who holds a lock and who waits for it
    Show(ShowArgs),
    /// Show a lock now and after every change, until interrupted
    Watch(ShowArgs),
    /// Take a lock away from its holder, or ask for it
    Release(ReleaseArgs),
    /// Make or clean the tables of a database
    #[command(subcommand, disable_help_subcommand = true)]
    Store(StoreVerb),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the manual page, of leasehold or of one of its commands
    Man {
        /// Which command, such as run, or latch set
        command: Vec<String>,
    },
}

impl Command {
    /// How what happens is told on stderr.
    pub(crate) fn remarks(&self) -> Remarks {
        match self {
            Self::Run(RunArgs { hold, .. }) | Self::Elect(ElectArgs { hold, .. }) if hold.json => {
                Remarks::Json
            }
            _ => Remarks::Text,
        }
    }
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only keys that start with this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `show` and `watch`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The name of the lock
    #[arg(value_parser = key)]
    pub(crate) key: Key,
    /// Print JSON: one object, one line each for `watch`
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `release`.
#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The name of the lock
    #[arg(value_parser = key)]
    pub(crate) key: Key,
    /// Really do it
    #[arg(long)]
    pub(crate) force: bool,
    /// Ask the holder to give it back; whether it does is up to it (`run --yield`)
    #[arg(long, conflicts_with = "force")]
    pub(crate) ask: bool,
    /// Only from the holder with this token; needed when there are several
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
    /// Print JSON: one object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be done to a store as a whole.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Make what the store needs; nothing happens when it is there
    Init(StoreArgs),
    /// Remove what is over, which traffic would remove in time
    Vacuum,
}

/// Arguments of `store init`.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Print the statements instead, for those who run migrations themselves
    #[arg(long)]
    pub(crate) print_sql: bool,
}

fn key(name: &str) -> Result<Key, String> {
    Key::new(name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, error::ErrorKind};

    use super::*;

    fn parse(line: &str) -> Result<Cli, ErrorKind> {
        Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.kind())
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_the_contract_lists_is_accepted() {
        for line in [
            "leasehold run k -- true",
            "leasehold run --store memory:// --wait 10s --lease 5 --fixed --max-hold 1h --shared --grace 0 --label x k -- a -b --c",
            "leasehold run --try --permits 1/3 k -- true",
            "leasehold run k --try -- true",
            "leasehold -v list",
            "leasehold list orders/ --json",
            "leasehold show k --json --store memory://",
            "leasehold watch k",
            "leasehold release k",
            "leasehold release k --force --token 7 --json",
            "leasehold release k --ask --token 7",
            "leasehold run --yield k -- true",
            "leasehold completions bash",
            "leasehold man",
            "leasehold man run",
            "leasehold man latch set",
            "leasehold run --at-least 1h --lease 5s --max-hold 2h --try --json k -- true",
            "leasehold elect k -- true",
            "leasehold elect --value a:1 --again --wait 1s --lease 5s --max-hold 1h --grace 1s --label x --json k -- true",
            "leasehold latch set k 3 --lives-for 1h",
            "leasehold latch down k",
            "leasehold latch down k 2 --json",
            "leasehold latch wait k --wait 10s",
            "leasehold latch show k",
            "leasehold latch delete k",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, kind) in [
            ("leasehold", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("leasehold run k", ErrorKind::MissingRequiredArgument),
            ("leasehold run -- true", ErrorKind::MissingRequiredArgument),
            ("leasehold run k --", ErrorKind::MissingRequiredArgument),
            ("leasehold run --wait 1s --try k -- true", ErrorKind::ArgumentConflict),
            ("leasehold run --shared --permits 1/2 k -- true", ErrorKind::ArgumentConflict),
            ("leasehold run --lease 0s k -- true", ErrorKind::ValueValidation),
            ("leasehold run --lease soon k -- true", ErrorKind::ValueValidation),
            ("leasehold run --frob k -- true", ErrorKind::UnknownArgument),
            ("leasehold release k --token x", ErrorKind::ValueValidation),
            ("leasehold release k --ask --force", ErrorKind::ArgumentConflict),
            ("leasehold run --at-least 0 k -- true", ErrorKind::ValueValidation),
            ("leasehold run --at-least 1s --wait 1s k -- true", ErrorKind::ArgumentConflict),
            ("leasehold run --at-least 1s --fixed k -- true", ErrorKind::ArgumentConflict),
            ("leasehold run --at-least 1s --shared k -- true", ErrorKind::ArgumentConflict),
            ("leasehold run --at-least 1s --permits 1/2 k -- true", ErrorKind::ArgumentConflict),
            ("leasehold elect k", ErrorKind::MissingRequiredArgument),
            ("leasehold elect --shared k -- true", ErrorKind::UnknownArgument),
            ("leasehold latch", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("leasehold latch set k", ErrorKind::MissingRequiredArgument),
            ("leasehold latch set k 0", ErrorKind::ValueValidation),
            ("leasehold latch down k 0", ErrorKind::ValueValidation),
            ("leasehold latch wait k --wait soon", ErrorKind::ValueValidation),
        ] {
            assert_eq!(parse(line).unwrap_err(), kind, "{line}");
        }
    }

    #[test]
    fn options_after_the_dashes_are_the_programs() {
        let Command::Run(run) = parse("leasehold run k -- prog --try -v").unwrap().command else { panic!() };
        assert_eq!(run.work.command, ["prog", "--try", "-v"]);
        assert!(!run.hold.try_once);
    }
}
