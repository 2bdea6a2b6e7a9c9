//! `leasehold store`: what a database's administrator does once, or now and then.

use leasehold::postgres::Postgres;

use crate::args::{StoreArgs, StoreVerb};
use crate::exit::{Exit, Failure};
use crate::output::print;
use crate::store::Chosen;

/// Makes, prints or cleans the tables.
pub(crate) async fn store(verb: StoreVerb, store: &Chosen) -> Result<Exit, Failure> {
    match verb {
        StoreVerb::Init(StoreArgs { print_sql: true }) => print(database(store)?.init_sql().trim_end())?,
        StoreVerb::Init(StoreArgs { print_sql: false }) => {
            // Whatever a store needs is made when somebody connects.
            store.connect().await?;
        }
        StoreVerb::Vacuum => {
            let looked = database(store)?.vacuum().await?;
            print(format_args!("{looked} locks looked at"))?;
        }
    }
    Ok(Exit::Success)
}

/// The database that the URL names.
fn database(store: &Chosen) -> Result<Postgres, Failure> {
    let is_database = ["postgres:", "postgresql:"].iter().any(|start| store.url.starts_with(start));
    if is_database {
        return Ok(Postgres::from_url(&store.url)?);
    }
    Err(Failure::new(
        Exit::Usage,
        "this store has no tables that need it: only databases do, like postgres://host/database",
    ))
}
