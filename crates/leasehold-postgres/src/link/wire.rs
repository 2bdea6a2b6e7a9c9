//! One connection for calls. Many can be under way: they are answered one after the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::try_join_all;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::dial::{Dialed, Task, Way, late};
use crate::ask::Call;
use crate::fault::{Silence, Unreachable};
use crate::sql::Verb;

pub(super) struct Wire {
    client: Client,
    saying: Saying,
    busy: AtomicUsize,
    used: AtomicBool,
    _task: Task,
}

/// How statements are sent.
enum Saying {
    /// By the names under which the server knows them.
    Prepared(Vec<Statement>),
    /// In full: a pooler may put every statement on another connection.
    InFull(Vec<String>),
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("busy", &self.busy).finish_non_exhaustive()
    }
}

impl Wire {
    pub(super) async fn connect(way: &Way) -> Result<Self, Unreachable> {
        let made = timeout(way.target.connect_limit(), async {
            let Dialed { client, task, is_direct } = way.dial(None).await?;
            let saying = if is_direct {
                let prepare = Verb::ALL.map(|verb| client.prepare_typed(way.texts.text(verb), verb.types()));
                let prepared = try_join_all(prepare).await;
                Saying::Prepared(prepared.map_err(|e| Unreachable::connecting(&e, &way.target.place()))?)
            } else {
                Saying::InFull(Verb::ALL.map(|verb| way.texts.text(verb).to_owned()).into())
            };
            let (busy, used) = (AtomicUsize::new(0), AtomicBool::new(true));
            Ok(Self { client, saying, busy, used, _task: task })
        });
        made.await.unwrap_or_else(|_| Err(late().at(&way.target.place())))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// How many calls are under way.
    pub(super) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether there was anything to do since this was asked last, or is now.
    pub(super) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed) || self.busy() > 0
    }

    pub(super) async fn send(&self, call: &Call, until: Instant) -> Result<Vec<Row>, Silence> {
        let _busy = Busy::new(&self.busy);
        self.used.store(true, Ordering::Relaxed);
        let values = call.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        let place = call.verb as usize;
        let rows = async {
            match &self.saying {
                Saying::Prepared(all) => self.client.query(&all[place], &values.collect::<Vec<_>>()).await,
                Saying::InFull(all) => {
                    let typed: Vec<_> = values.zip(call.verb.types().iter().cloned()).collect();
                    self.client.query_typed(&all[place], &typed).await
                }
            }
        };
        timeout_at(until, rows).await.map_or(Err(Silence::Late), |rows| rows.map_err(Silence::Failed))
    }
}

/// Counts a call while it is under way.
struct Busy<'a>(&'a AtomicUsize);

impl<'a> Busy<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
