//! `leasehold store`: what a database's administrator does once, or now and then.

use leasehold::mysql::Mysql;
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
            database(store)?.vacuum().await?;
        }
    }
    Ok(Exit::Success)
}

/// A store with tables.
enum Database {
    Postgres(Postgres),
    Mysql(Mysql),
}

impl Database {
    fn init_sql(&self) -> String {
        match self {
            Self::Postgres(store) => store.init_sql().to_owned(),
            Self::Mysql(store) => store.init_sql(),
        }
    }

    async fn vacuum(&self) -> Result<u64, leasehold::Error> {
        match self {
            Self::Postgres(store) => store.vacuum().await,
            Self::Mysql(store) => store.vacuum().await,
        }
    }
}

/// The database that the URL names.
fn database(store: &Chosen) -> Result<Database, Failure> {
    match store.url.split_once(':').map_or("", |(scheme, _)| scheme) {
        "postgres" | "postgresql" => Ok(Database::Postgres(Postgres::from_url(&store.url)?)),
        "mysql" | "mariadb" => Ok(Database::Mysql(Mysql::from_url(&store.url)?)),
        _ => {
            let message =
                "this store has no tables that need it: only databases do, like postgres://host/database";
            Err(Failure::new(Exit::Usage, message))
        }
    }
}
