//! `leasehold list`: the locks in use.

use crate::args::ListArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Resource, print};
use crate::store::Chosen;

/// Prints everything that starts with the prefix; nothing when nothing is in use.
pub(crate) async fn list(args: ListArgs, store: &Chosen) -> Result<Exit, Failure> {
    let client = store.connect().await?;
    let resources: Vec<_> = client.list(&args.prefix).await?.into_iter().map(Resource::from).collect();
    if args.json {
        print(super::show::json(&resources)?)?;
    } else {
        resources.iter().try_for_each(print)?;
    }
    Ok(Exit::Success)
}
