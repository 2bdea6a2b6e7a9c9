//! Which store: `--store`, `LEASEHOLD_STORE`, or the file in the user's state directory.

use std::sync::Arc;

use leasehold::{Client, Store, redact, sqlite};

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::say;

/// Where the store is taken from when `--store` is not given.
pub(crate) const STORE_VARIABLE: &str = "LEASEHOLD_STORE";

/// The store of this run.
pub(crate) struct Chosen {
    store: Arc<dyn Store>,
    /// The URL has a password in it: not for the program's eyes.
    pub(crate) has_secret: bool,
    pub(crate) verbose: bool,
}

impl Chosen {
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        let given = global.store.filter(|url| !url.is_empty());
        let shown = match &given {
            Some(url) => redact(url),
            None => format!("sqlite://{}", sqlite::default_path()?.display()),
        };
        let url = given.unwrap_or_else(|| "sqlite:".to_owned());
        let in_environment = std::env::var(STORE_VARIABLE).unwrap_or_default();
        let has_secret = redact(&in_environment) != in_environment;
        if redact(&url) != url && url != in_environment {
            say(format_args!("others can see the password in the arguments: use {STORE_VARIABLE} instead"));
        }
        if global.verbose {
            say(format_args!("store {}", shown.escape_debug()));
        }
        Ok(Self { store: leasehold::open(&url)?, has_secret, verbose: global.verbose })
    }

    /// Whatever goes wrong here: the URL is in order, so it is the store.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let client = Client::new(self.store.clone()).await;
        client.map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))
    }
}
