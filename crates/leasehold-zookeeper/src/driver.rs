//! The driver's own task, tied to a signal.
//!
//! A watcher of the driver panics when it is waited for while the driver goes: when its client is dropped, and when the
//! runtime ends. So the signal is given before that, and whoever waits for a watcher listens to the signal first.

use std::future::poll_fn;
use std::pin::pin;

use spawns_core::{Spawn, Task, enter};
use tokio::sync::watch;
use zookeeper_client::{Client, Connector, Error as Fault};

/// Connects; `ended` is set before the driver goes.
pub(crate) async fn connect(
    connector: Connector,
    hosts: &str,
    ended: &watch::Sender<bool>,
) -> Result<Client, Fault> {
    let tied = Tied(ended.clone());
    let mut connecting = pin!(connector.connect(hosts));
    poll_fn(|cx| {
        let _scope = enter(&tied);
        connecting.as_mut().poll(cx)
    })
    .await
}

/// Starts the driver's task.
struct Tied(watch::Sender<bool>);

impl Spawn for Tied {
    fn spawn(&self, task: Task) {
        let ended = self.0.clone();
        tokio::spawn(async move {
            let mut serving = Box::into_pin(task.future);
            // Dropped before the one above.
            let _ending = Ending(ended);
            serving.as_mut().await;
        });
    }
}

struct Ending(watch::Sender<bool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
