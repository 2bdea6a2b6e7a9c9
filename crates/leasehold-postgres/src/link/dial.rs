//! Making a connection: TLS, logging in, and seeing that the tables are there.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::ErrorKind;
use leasehold_core::url::Address;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Notification};

use crate::fault::{Unreachable, is_missing, is_pooler};
use crate::proof::Secret;
use crate::settings::Settings;
use crate::sql::{FORMAT, Statements};
use crate::tls::Connector;
use crate::url::{Target, place_of};

/// Where what the server says without being asked goes, on the task that reads it: whoever waits for it waits for no other.
pub(crate) type Ear = Arc<dyn Fn(&Notification) + Send + Sync>;

/// Where to connect to, and what to say there.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) target: Target,
    pub(crate) texts: Statements,
    /// What proves a notification, as the last connection found it.
    pub(crate) secret: Secret,
    settings: Mutex<Option<Settings>>,
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Task {
    handle: AbortHandle,
    ended: watch::Receiver<()>,
}

impl Task {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        let (alive, ended) = watch::channel(());
        let task = tokio::spawn(async move {
            let _alive = alive;
            work.await;
        });
        Self { handle: task.abort_handle(), ended }
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        // Nothing is ever sent: only the end is seen.
        let _ = self.ended.clone().changed().await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// A connection.
pub(crate) struct Dialed {
    pub(crate) client: Client,
    /// Moves the bytes.
    pub(crate) task: Task,
    /// Whether it goes to the server itself. Behind a pooler nothing lasts from one statement to the next.
    pub(crate) is_direct: bool,
}

/// Why not.
enum Failed {
    AtServer(tokio_postgres::Error),
    Otherwise(Unreachable),
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::AtServer(error)
    }
}

impl Way {
    pub(crate) fn new(target: Target, texts: Statements) -> Self {
        Self { target, texts, secret: Secret::default(), settings: Mutex::default() }
    }

    /// What the last connection found.
    pub(crate) fn settings(&self) -> Option<Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connects, within the time that the URL allows for each server.
    pub(crate) async fn dial(&self, ear: Option<Ear>) -> Result<Dialed, Unreachable> {
        self.dial_as(&self.target.direct(), ear).await
    }

    /// Connects with these settings where nobody is in between: to the first server that takes writes.
    pub(crate) async fn dial_as(&self, direct: &Config, ear: Option<Ear>) -> Result<Dialed, Unreachable> {
        let mut trouble: Option<Unreachable> = None;
        for server in &self.target.servers {
            let place = place_of(server);
            let dialed = timeout(self.target.connect_timeout, self.dial_at(server, direct, ear.clone()));
            match dialed.await.unwrap_or_else(|_| Err(late().at(&place))) {
                Ok(dialed) => return Ok(dialed),
                Err(why) => {
                    trouble = Some(match trouble {
                        Some(earlier) => earlier.or(why),
                        None => why,
                    });
                }
            }
        }
        Err(trouble.unwrap_or_else(|| Unreachable::new(ErrorKind::Invalid, "no server is named")))
    }

    async fn dial_at(
        &self,
        server: &Address,
        direct: &Config,
        ear: Option<Ear>,
    ) -> Result<Dialed, Unreachable> {
        let place = &place_of(server);
        let failed = |failed| match failed {
            Failed::AtServer(error) => Unreachable::connecting(&error, place),
            Failed::Otherwise(unreachable) => unreachable,
        };
        let to_server = |config: &Config| {
            let mut config = config.clone();
            config.host(&server.host).port(server.port);
            config
        };
        let (client, task) = match self.connect(&to_server(direct), ear.clone()).await {
            Err(Failed::AtServer(error)) if is_pooler(&error) => {
                self.connect(&to_server(self.target.bare()), ear).await.map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
        let mut greeted = self.greet(&client).await;
        if let Err(Failed::AtServer(error)) = &greeted
            && is_missing(error)
        {
            let made = client.batch_execute(&self.texts.init).await;
            if made.is_err() {
                // Ends the transaction that failed.
                let _ = client.batch_execute("ROLLBACK").await;
            }
            greeted = self.greet(&client).await;
            if let (Err(why), Err(_)) = (made, &greeted) {
                greeted = Err(why.into());
            }
        }
        let settings = greeted.map_err(failed)?;
        if let Some(check) = settings.refusal() {
            return Err(Unreachable::new(ErrorKind::Invalid, check.to_string()).at(place));
        }
        let (is_direct, ours) = (settings.is_direct, settings.statements(self.target.mode));
        if let Some(ours) = ours.filter(|_| is_direct) {
            client.batch_execute(&ours).await.map_err(|error| failed(error.into()))?;
        }
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
        Ok(Dialed { client, task, is_direct })
    }

    async fn connect(&self, config: &Config, ear: Option<Ear>) -> Result<(Client, Task), Failed> {
        let (client, encoding, task) = match &self.target.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                (client, encoding(&connection), drive(connection, ear))
            }
            Some(files) => {
                let connector = Connector::new(files).map_err(|e| Failed::Otherwise(e.into()))?;
                let (client, connection) = config.connect(connector).await?;
                (client, encoding(&connection), drive(connection, ear))
            }
        };
        if !matches!(encoding.as_str(), "UTF8" | "SQL_ASCII") {
            let message = format!("the database's encoding is {encoding}: use a database with UTF8");
            return Err(Failed::Otherwise(Unreachable::new(ErrorKind::Invalid, message)));
        }
        Ok((client, task))
    }

    /// Has the server end the statement that it works on for this client.
    pub(crate) async fn cancel(&self, client: &Client) -> Result<(), Unreachable> {
        let failed = |error| Unreachable::connecting(&error, &self.target.place());
        let token = client.cancel_token();
        match &self.target.tls {
            None => token.cancel_query(NoTls).await.map_err(failed),
            Some(files) => token.cancel_query(Connector::new(files)?).await.map_err(failed),
        }
    }

    /// What this connection finds: the secret, and the settings.
    async fn greet(&self, client: &Client) -> Result<Settings, Failed> {
        let row = client.query_typed_one(&self.texts.greet, &[]).await?;
        let (format, secret) = (row.try_get::<_, Option<i32>>(0)?, row.try_get::<_, Option<Vec<u8>>>(1)?);
        if format != Some(FORMAT) {
            let message = "the lock tables were made by another version of leasehold: use another schema";
            return Err(Failed::Otherwise(Unreachable::new(ErrorKind::Conflict, message)));
        }
        self.secret.set(secret);
        Ok(Settings::read(&row, 2)?)
    }
}

/// A server that did not answer in time.
pub(crate) fn late() -> Unreachable {
    let message = "no answer in time: check that the server runs and can be reached";
    Unreachable::new(ErrorKind::Unavailable, message)
}

fn encoding<S, T>(connection: &Connection<S, T>) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    connection.parameter("server_encoding").unwrap_or("UTF8").to_owned()
}

/// Moves the bytes of a connection until it ends.
fn drive<S, T>(mut connection: Connection<S, T>, ear: Option<Ear>) -> Task
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Task::spawn(async move {
        loop {
            match poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(AsyncMessage::Notification(message))) => {
                    if let Some(ear) = &ear {
                        ear(&message);
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    tracing::debug!(%error, "a connection ended");
                    return;
                }
                None => return,
            }
        }
    })
}
