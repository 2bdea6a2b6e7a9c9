//! What it means when the database refuses, fails or says nothing.

use leasehold_core::{Error, ErrorKind};
use leasehold_sql::TOO_FAR_AHEAD;
use tokio_postgres::error::{Severity, SqlState};

/// The code that `begin_1` raises.
const ISOLATION: &str = "LH001";

/// The code of `number_1` and `awake_1` when numbers would get too far ahead of the clock.
const CLOCK: &str = "LH002";

/// The code of tables that have another format.
const FORMAT: &str = "LH003";

/// The code of `draw_1` when a dump was restored between two statements of one request.
const REPLACED: &str = "LH004";

/// What a server says that takes no writes, now or ever.
const STANDBY: &str = "the server is a standby, or read-only: name the primary";

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum Silence {
    /// Not within the time of the call.
    Late,
    /// The database refused it, or the connection ended.
    Failed(tokio_postgres::Error),
}

impl Silence {
    /// Whether the connection is of no more use.
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            Self::Late => true,
            Self::Failed(error) => {
                // A primary that became a standby stays one: the next connection may find the new primary.
                let is_standby = code(error) == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
                code(error).is_none() || is_fatal(error) || is_missing(error) || is_standby
            }
        }
    }

    pub(crate) fn into_error(self) -> Error {
        let unknown = |message: &str| Error::new(ErrorKind::Indeterminate, message).at("postgres");
        match self {
            Self::Late => unknown("no answer in time: it may have happened"),
            // Whatever ends a session may come between a commit and the word of it.
            Self::Failed(cause) if code(&cause).is_none() || is_fatal(&cause) => {
                unknown("the connection broke before the answer: it may have happened").because(cause)
            }
            Self::Failed(cause) => refusal(cause),
        }
    }
}

/// An error that the database answered a statement with: it did not happen.
fn refusal(cause: tokio_postgres::Error) -> Error {
    let code = code(&cause).map_or("", SqlState::code);
    let (kind, message) = match code {
        ISOLATION => (
            ErrorKind::Invalid,
            "a pooler hides our settings: set default_transaction_isolation to 'read committed' for this user",
        ),
        CLOCK => (ErrorKind::Unavailable, TOO_FAR_AHEAD),
        REPLACED => (ErrorKind::Unavailable, "the sequence of tokens was replaced at this moment: try again"),
        "57014" | "55P03" => (ErrorKind::Unavailable, "the lock's row was not to be had in time: try again"),
        "40001" | "40P01" => (ErrorKind::Unavailable, "others were in the way: try again"),
        "53100" => (ErrorKind::Unavailable, "the database's disk is full: free some space"),
        "25006" => (ErrorKind::Unavailable, STANDBY),
        "42P05" | "26000" => {
            (ErrorKind::Unavailable, "a pooler mixes up statements: connect past it, or update it")
        }
        "42501" => (
            ErrorKind::Denied,
            "this user lacks a right: give it the rights that the store's documentation lists",
        ),
        _ if is_missing(&cause) => {
            (ErrorKind::Unavailable, "the lock tables are gone: they are made again if we may")
        }
        _ if code.starts_with("53") || code.starts_with("58") => {
            (ErrorKind::Unavailable, "the database is out of something: look into its log")
        }
        _ => (ErrorKind::Protocol, "the database answered something that this version does not know"),
    };
    Error::new(kind, message).at("postgres").because(cause).transient_if(message == STANDBY)
}

fn code(error: &tokio_postgres::Error) -> Option<&SqlState> {
    error.code()
}

/// Whether the session ended with it.
fn is_fatal(error: &tokio_postgres::Error) -> bool {
    let severity = error.as_db_error().and_then(tokio_postgres::error::DbError::parsed_severity);
    matches!(severity, Some(Severity::Fatal | Severity::Panic))
}

/// Whether the tables or functions are not there, or not as they were when the statement was prepared.
pub(crate) fn is_missing(error: &tokio_postgres::Error) -> bool {
    // Schema, table, function, column, type; and a cached plan that does not fit any more.
    let codes = ["3F000", "42P01", "42883", "42703", "42704", "0A000"];
    code(error).is_some_and(|code| codes.contains(&code.code()))
}

/// Whether a statement was ended because its time was over, or because somebody asked for that.
pub(crate) fn is_over(error: &tokio_postgres::Error) -> bool {
    code(error).is_some_and(|code| [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED].contains(code))
}

/// Whether a pooler refused the settings of our session when we connected. PgBouncer names the startup parameter; RDS Proxy
/// supports no command-line options. A server that has another reason also refuses the next attempt, without settings.
pub(crate) fn is_pooler(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|said| match *said.code() {
        SqlState::PROTOCOL_VIOLATION => said.message().contains("startup parameter"),
        SqlState::FEATURE_NOT_SUPPORTED => true,
        _ => false,
    })
}

/// Why there is no connection: it can be told to many.
#[derive(Clone, Debug)]
pub(crate) struct Unreachable {
    kind: ErrorKind,
    /// The servers that it is about; empty if it is about none.
    places: String,
    message: String,
    is_transient: bool,
}

impl Unreachable {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, places: String::new(), message: message.into(), is_transient: false }
    }

    /// What happened while connecting to `place`.
    pub(crate) fn connecting(error: &tokio_postgres::Error, place: &str) -> Self {
        let said = error.as_db_error().map(|said| said.message().to_owned());
        let code = code(error).map_or("", SqlState::code);
        let (kind, message) = match code {
            "28P01" => {
                (ErrorKind::Denied, "the server refused user or password: put the right ones into the URL")
            }
            "28000" => {
                (ErrorKind::Denied, "the server lets nobody in like this: check user, database and sslmode")
            }
            "3D000" => (ErrorKind::Invalid, "there is no such database: check the URL"),
            "53300" => (ErrorKind::Unavailable, "the server has no connection left: raise max_connections"),
            "57P03" => (ErrorKind::Unavailable, "the server is starting or stopping: try again in a moment"),
            "42501" => (
                ErrorKind::Denied,
                "the lock tables are missing and this user may not make them: run the statements of \
                 `leasehold store init --print-sql`, or give it the right",
            ),
            ISOLATION => (
                ErrorKind::Invalid,
                "a pooler hides our settings: set default_transaction_isolation to 'read committed' for this user",
            ),
            CLOCK => (ErrorKind::Unavailable, TOO_FAR_AHEAD),
            FORMAT => (ErrorKind::Conflict, "the lock tables were made by another version of leasehold"),
            "25006" | "55000" => (ErrorKind::Unavailable, STANDBY),
            "" if is_certificate(error) => (
                ErrorKind::Denied,
                "the certificates do not match: check sslrootcert, sslcert, sslkey and the host's name",
            ),
            "" if is_standby(error) => (ErrorKind::Unavailable, STANDBY),
            "" => (ErrorKind::Unavailable, "cannot connect: check that the server runs and can be reached"),
            _ => (ErrorKind::Unavailable, "the server refused"),
        };
        let is_transient = message == STANDBY || code == "57P03";
        let cause = said.unwrap_or_else(|| causes(error));
        Self { is_transient, ..Self::new(kind, format!("{message}: {cause}")) }.at(place)
    }

    /// Names the server.
    pub(crate) fn at(self, place: &str) -> Self {
        Self { places: place.to_owned(), ..self }
    }

    /// Of two reasons the one that says more: what somebody must change, then who answered. The same reason names both
    /// servers.
    pub(crate) fn or(self, other: Self) -> Self {
        let rank = |why: &Self| (why.is_final(), why.is_transient);
        if (self.kind, &self.message) == (other.kind, &other.message) && !self.places.is_empty() {
            return Self { places: format!("{}, {}", self.places, other.places), ..self };
        }
        if rank(&other) > rank(&self) { other } else { self }
    }

    /// Whether somebody must change something before it can work.
    pub(crate) fn is_final(&self) -> bool {
        self.kind != ErrorKind::Unavailable
    }

    pub(crate) fn to_error(&self) -> Error {
        let message = match self.places.as_str() {
            "" => self.message.clone(),
            places => format!("{places}: {}", self.message),
        };
        Error::new(self.kind, message).at("postgres").transient_if(self.is_transient)
    }
}

impl From<Error> for Unreachable {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let message = message.strip_prefix("postgres: ").unwrap_or(&message);
        Self { is_transient: error.is_transient(), ..Self::new(error.kind(), message) }
    }
}

/// An error and what is behind it.
fn causes(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

/// Whether none of several servers takes writes, as the driver says it.
fn is_standby(error: &tokio_postgres::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| {
        cause.kind() == std::io::ErrorKind::PermissionDenied && cause.raw_os_error().is_none()
    })
}

fn is_certificate(error: &tokio_postgres::Error) -> bool {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let inside = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if cause.is::<rustls::Error>() || inside.is_some_and(|inside| inside.is::<rustls::Error>()) {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_postgres::NoTls;

    use super::*;

    /// How the driver reports a server that answers every connection with this error.
    async fn refused_with(code: &str, message: &str) -> tokio_postgres::Error {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url =
            format!("postgres://app@{}/app?sslmode=disable", listener.local_addr().expect("it is bound"));
        let fields = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            let length = u32::try_from(fields.len() + 4).unwrap();
            let answer = [&b"E"[..], &length.to_be_bytes(), fields.as_bytes()].concat();
            stream.write_all(&answer).await.unwrap();
        };
        let (connected, ()) = tokio::join!(tokio_postgres::connect(&url, NoTls), server);
        connected.map(drop).expect_err("the server refuses everything")
    }

    #[tokio::test]
    async fn poolers_that_refuse_our_settings_are_recognised() {
        for (code, message) in [
            ("08P01", "unsupported startup parameter: options"),
            ("0A000", "Feature not supported: RDS Proxy currently doesn't support command-line options."),
        ] {
            assert!(is_pooler(&refused_with(code, message).await), "{message}");
        }
        for (code, message) in [
            ("08P01", "expected password response, got message type 88"),
            ("28P01", "password authentication failed for user \"app\""),
            ("57P03", "the database system is starting up"),
        ] {
            assert!(!is_pooler(&refused_with(code, message).await), "{message}");
        }
    }
}
