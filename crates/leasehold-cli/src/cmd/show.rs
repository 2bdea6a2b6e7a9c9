//! `leasehold show` and `watch`: one lock, once or again and again.

use serde::Serialize;

use crate::args::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Resource, print, say};
use crate::store::Chosen;

/// Prints the lock as it is now. A free one is no failure.
pub(crate) async fn show(args: ShowArgs, store: &Chosen) -> Result<Exit, Failure> {
    let client = store.connect().await?;
    let snapshot = client.inspect(args.key.as_str()).await?;
    present(&Resource::new(&args.key, snapshot), args.json)?;
    Ok(Exit::Success)
}

/// Prints the lock now and after every change, until a signal ends us.
pub(crate) async fn watch(args: ShowArgs, store: &Chosen) -> Result<Exit, Failure> {
    let client = store.connect().await?;
    let mut watch = client.watch(args.key.as_str())?;
    loop {
        match watch.next().await {
            Ok(snapshot) => present(&Resource::new(&args.key, snapshot), args.json)?,
            // An outage is waited out: who watches wants to see the end of it.
            Err(error) if error.is_retryable() => {
                say(&error);
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn present(resource: &Resource, as_json: bool) -> Result<(), Failure> {
    if as_json {
        print(json(resource)?)?
    } else {
        print(resource)?
    }
    Ok(())
}

/// On one line.
pub(super) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| std::io::Error::from(error).into())
}
