//! Requests to Consul's agents over HTTP/1.1: kept connections, a limit for every request, and an honest word about
//! what may have happened.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use leasehold_core::url::{Address, Unreached};
use leasehold_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::pool::Pool;
use crate::url::{Target, Token, read_token};

pub(crate) type Link = SendRequest<Full<Bytes>>;

/// What an agent answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// `X-Consul-Index`: what a blocking query goes on from.
    pub(crate) index: u64,
    pub(crate) body: Bytes,
}

impl Reply {
    /// The first line of what it said, for messages.
    pub(crate) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        text.lines().next().unwrap_or_default().chars().take(200).collect()
    }

    /// Whether the token lacks a right, or is none any more. Transactions say so inside a conflict.
    fn is_denied(&self) -> bool {
        const DENIED: &[u8] = b"Permission denied";
        let says_so = || self.body.windows(DENIED.len()).any(|part| part == DENIED);
        self.status == 403 || (self.status == 409 && says_so())
    }
}

/// Whether a request that failed can have changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

/// The way to the agents. One of them is used as long as it answers.
pub(crate) struct Http {
    target: Target,
    /// Parameters of every request: datacenter and namespace.
    scope: String,
    current: AtomicUsize,
    /// What we show to be let in, as it was last read.
    token: Mutex<Option<Token>>,
    kept: Pool,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(target: Target) -> Self {
        let mut scope = String::new();
        for (name, value) in [("dc", &target.datacenter), ("ns", &target.namespace)] {
            if let Some(value) = value {
                scope += &format!("&{name}={}", escape(value));
            }
        }
        let token = Mutex::new(target.token.clone());
        Self { target, scope, current: AtomicUsize::new(0), token, kept: Pool::default() }
    }

    fn token(&self) -> Option<Token> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the token's file again. Says whether there is another token than the one that was refused.
    async fn has_new_token(&self, refused: Option<&Token>) -> bool {
        let Some(file) = self.target.token_file.clone() else { return false };
        let read = tokio::task::spawn_blocking(move || read_token(&file)).await;
        let next = match read.map_err(|e| wrong("the token was not read").because(e)).flatten() {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(%error, "the servers refuse the token, and its file cannot be read again");
                return false;
            }
        };
        let is_new = next.as_ref() != refused;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = next;
        is_new
    }

    /// Asks. `path` has its question mark; a request that takes longer than the URL's limit fails.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        effect: Effect,
    ) -> Result<Reply> {
        self.ask_within(method, path, body, effect, self.target.timeout).await
    }

    /// The same with another limit, for blocking queries. What servers refuse is asked once more if the token's file
    /// holds another token by now.
    pub(crate) async fn ask_within(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        effect: Effect,
        limit: Duration,
    ) -> Result<Reply> {
        let (path, body, token) = (format!("{path}{}", self.scope), Bytes::from(body), self.token());
        let ask = |token: Option<Token>| self.ask_any(&method, &path, body.clone(), token, effect, limit);
        let reply = ask(token.clone()).await?;
        if reply.is_denied() && self.has_new_token(token.as_ref()).await {
            return ask(self.token()).await;
        }
        Ok(reply)
    }

    /// Asks the current agent, or the first one after it that can be reached.
    async fn ask_any(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
        token: Option<Token>,
        effect: Effect,
        limit: Duration,
    ) -> Result<Reply> {
        let until = Instant::now() + limit;
        let mut unreached = Unreached::default();
        for _ in &self.target.hosts {
            let host = self.current.load(Ordering::Relaxed) % self.target.hosts.len();
            let address = &self.target.hosts[host];
            let request = self.request(host, method, path, body.clone(), token.clone())?;
            let failed = match timeout_at(until, self.send(host, request)).await {
                Ok(Ok(reply)) => {
                    if reply.status >= 500 {
                        self.move_on(host);
                    }
                    return Ok(reply);
                }
                Ok(Err(failed)) => failed,
                Err(_) => Failed::Sent(format!("no answer within {limit:?}").into()),
            };
            self.move_on(host);
            match failed {
                Failed::Refused(error) => return Err(error),
                Failed::NotSent(cause) => unreached.add(address, cause),
                Failed::Sent(cause) => {
                    let kind = match effect {
                        Effect::Reads => ErrorKind::Unavailable,
                        Effect::Writes => ErrorKind::Indeterminate,
                    };
                    let message = format!("{address} did not answer: ask again");
                    return Err(Error::new(kind, message).at("consul").because(cause));
                }
            }
        }
        Err(unreached.into_error("consul"))
    }

    /// The next request goes to the next agent.
    fn move_on(&self, from: usize) {
        let next = (from + 1) % self.target.hosts.len();
        // Whoever else failed at the same time has moved on already.
        let _ = self.current.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn request(
        &self,
        host: usize,
        method: &Method,
        path: &str,
        body: Bytes,
        token: Option<Token>,
    ) -> Result<Request<Full<Bytes>>> {
        let address = self.target.hosts[host].to_string();
        let mut request = Request::builder().method(method.clone()).uri(path).header(HOST, address);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            let value = HeaderValue::from_str(&token.0).map(|mut value| {
                value.set_sensitive(true);
                value
            });
            let value = value.map_err(|_| wrong("the token is no text that a header can carry"))?;
            request = request.header("X-Consul-Token", value);
        }
        request.body(Full::new(body)).map_err(|cause| wrong("the request makes no sense").because(cause))
    }

    async fn send(&self, host: usize, mut request: Request<Full<Bytes>>) -> Result<Reply, Failed> {
        loop {
            let kept = self.kept.take(host);
            let is_new = kept.is_none();
            let mut link = match kept {
                Some(link) => link,
                None => self.connect(host).await?,
            };
            if link.ready().await.is_err() && !is_new {
                continue;
            }
            match link.try_send_request(request).await {
                Ok(response) => {
                    let status = response.status().as_u16();
                    let index = response.headers().get("X-Consul-Index");
                    let index = index.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
                    let body = response.into_body().collect().await.map_err(|e| Failed::Sent(e.into()))?;
                    self.kept.keep(host, link);
                    return Ok(Reply { status, index, body: body.to_bytes() });
                }
                Err(mut error) => match error.take_message() {
                    // The connection had gone while it was kept: nothing was sent.
                    Some(unsent) if !is_new => request = unsent,
                    Some(_) => return Err(Failed::NotSent(error.into_error().into())),
                    None => return Err(Failed::Sent(error.into_error().into())),
                },
            }
        }
    }

    async fn connect(&self, host: usize) -> Result<Link, Failed> {
        let Address { host, port } = &self.target.hosts[host];
        let not_sent = |cause: Cause| Failed::NotSent(cause);
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|e| not_sent(e.into()))?;
        stream.set_nodelay(true).map_err(|e| not_sent(e.into()))?;
        let Some(tls) = &self.target.tls else { return speak(stream).await };
        let name = ServerName::try_from(host.clone()).map_err(|e| not_sent(e.into()))?;
        let connector =
            TlsConnector::from(leasehold_tls::client_config("consul", tls).map_err(Failed::Refused)?);
        speak(connector.connect(name, stream).await.map_err(|e| not_sent(e.into()))?).await
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Link, Failed> {
    let (link, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| Failed::NotSent(e.into()))?;
    // Ends with the connection, which ends with the last handle on it.
    tokio::spawn(connection);
    Ok(link)
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

enum Failed {
    /// Our own fault.
    Refused(Error),
    NotSent(Cause),
    Sent(Cause),
}

/// A part of a path or a parameter.
pub(crate) fn escape(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn wrong(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, message).at("consul")
}
