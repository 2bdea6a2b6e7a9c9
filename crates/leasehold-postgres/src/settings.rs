//! The settings of the server that this store's promises rest on.
//!
//! Every connection reads them with its greeting, and is refused where a setting voids what the store promises. What belongs to
//! our own sessions is set: by the options of a connection, and for settings that older servers do not know, by a statement.
//! What is left becomes the checks of `Info`, once per client.

use leasehold_core::{Check, Info, Severity, TokenStrength};
use leasehold_sql::Mode;
use tokio_postgres::{Error, Row};

/// What a greeting asks for, in the order of [`Settings::read`]. A setting that the server does not know is null.
pub(crate) const COLUMNS: &str = "current_setting('leasehold_store.direct', true) IS NOT NULL, \
    current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), \
    current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_catalog.pg_stat_replication), \
    current_setting('transaction_isolation'), current_setting('transaction_read_only'), \
    current_setting('search_path'), current_setting('statement_timeout'), \
    current_setting('idle_in_transaction_session_timeout'), current_setting('idle_session_timeout', true), \
    current_setting('transaction_timeout', true)";

/// What a connection found.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Whether the connection goes to the server itself, with our options. Behind a pooler nothing lasts from one statement
    /// to the next.
    pub(crate) is_direct: bool,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    synchronous_standby_names: String,
    standbys: i64,
    isolation: String,
    read_only: String,
    search_path: String,
    statement_timeout: String,
    idle_in_transaction: String,
    idle_session: Option<String>,
    transaction: Option<String>,
}

impl Settings {
    /// Reads the columns of a greeting, of which the first is at `at`.
    pub(crate) fn read(row: &Row, at: usize) -> Result<Self, Error> {
        let text = |column: usize| row.try_get::<_, String>(at + column);
        Ok(Self {
            is_direct: row.try_get(at)?,
            fsync: text(1)?,
            full_page_writes: text(2)?,
            synchronous_commit: text(3)?,
            synchronous_standby_names: text(4)?,
            standbys: row.try_get(at + 5)?,
            isolation: text(6)?,
            read_only: text(7)?,
            search_path: text(8)?,
            statement_timeout: text(9)?,
            idle_in_transaction: text(10)?,
            idle_session: row.try_get(at + 11)?,
            transaction: row.try_get(at + 12)?,
        })
    }

    /// The statements that set what the options of a connection cannot: a server that does not know an option refuses the
    /// connection. `None` if there is nothing to set.
    pub(crate) fn statements(&self, mode: Mode) -> Option<String> {
        let is_set = |value: &Option<String>| value.as_deref().is_some_and(|value| value != "0");
        let mut all = Vec::new();
        // It would end the open transaction that a row lock is. From PostgreSQL 17 on.
        if is_set(&self.transaction) {
            all.push("SET transaction_timeout = 0");
        }
        // It would end the connection that listens. The connections of advisory locks have their own. From PostgreSQL 14 on.
        if mode != Mode::Advisory && is_set(&self.idle_session) {
            all.push("SET idle_session_timeout = 0");
        }
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What `info` becomes on this server.
    pub(crate) fn info(&self, info: &Info) -> Info {
        let checks = self.checks();
        let weakens = |check: &Check| check.severity == Severity::Warning && check.name != POOLER;
        let tokens = if checks.iter().any(weakens) { TokenStrength::ClockBound } else { info.tokens };
        Info { tokens, pushes: info.pushes && self.is_direct, checks, ..info.clone() }
    }

    /// The setting for which this connection must not be used.
    pub(crate) fn refusal(&self) -> Option<Check> {
        self.checks().into_iter().find(|check| check.severity == Severity::Refused)
    }

    fn checks(&self) -> Vec<Check> {
        let timeout = |name: &str, found: &Option<String>| {
            Check::ok(name, found.as_deref().map_or("unknown to this server", |_| "set by us"))
        };
        let mut checks = vec![
            self.durable("fsync", &self.fsync, "a power cut can forget grants, or damage the database"),
            self.durable(
                "full_page_writes",
                &self.full_page_writes,
                "a power cut can damage the database, unless its file system writes whole pages",
            ),
            // The functions turn it on where it is off or local.
            Check::ok("synchronous_commit", &self.synchronous_commit),
            self.standbys(),
            self.isolation(),
            self.read_only(),
            Check::ok("search_path", &self.search_path),
        ];
        if self.is_direct {
            checks.extend([
                Check::ok("statement_timeout", &self.statement_timeout),
                Check::ok("idle_in_transaction_session_timeout", &self.idle_in_transaction),
                timeout("idle_session_timeout", &self.idle_session),
                timeout("transaction_timeout", &self.transaction),
            ]);
        } else {
            let found = "between this client and the server";
            checks.push(
                Check::warning(POOLER, found)
                    .effect("waiters are not notified and look once a second")
                    .remedy("connect past it if locks change hands often"),
            );
        }
        checks
    }

    fn durable(&self, name: &str, found: &str, effect: &str) -> Check {
        if found == "on" {
            return Check::ok(name, found);
        }
        Check::warning(name, found).effect(effect).remedy(format!("set {name} = on on the server"))
    }

    fn standbys(&self) -> Check {
        let (name, names) = ("synchronous_standby_names", self.synchronous_standby_names.as_str());
        match (names, self.standbys) {
            ("", 0) => Check::ok(name, "empty, without a standby"),
            ("", many) => Check::warning(name, format!("empty, with {many} standbys or backups connected"))
                .effect("a standby that takes over may lack the last grants; tokens rise there by its clock")
                .remedy("name a standby on the server, so that commits wait for it"),
            _ => Check::ok(name, names),
        }
    }

    fn isolation(&self) -> Check {
        let name = "default_transaction_isolation";
        if self.isolation == "read committed" {
            return Check::ok(name, &self.isolation);
        }
        Check::refused(name, &self.isolation)
            .effect("two clients could be granted one lock, and a pooler hides our settings")
            .remedy("set it to 'read committed' for this user")
    }

    fn read_only(&self) -> Check {
        let name = "default_transaction_read_only";
        if self.read_only == "off" {
            return Check::ok(name, &self.read_only);
        }
        Check::refused(name, &self.read_only)
            .effect("no lock can be written, and a pooler hides our settings")
            .remedy("set it to off for this user")
    }
}

const POOLER: &str = "pooler";

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(idle_session: Option<&str>, transaction: Option<&str>) -> Settings {
        Settings {
            is_direct: true,
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            synchronous_commit: "on".to_owned(),
            synchronous_standby_names: String::new(),
            standbys: 0,
            isolation: "read committed".to_owned(),
            read_only: "off".to_owned(),
            search_path: "pg_catalog, pg_temp".to_owned(),
            statement_timeout: "1600ms".to_owned(),
            idle_in_transaction: "0".to_owned(),
            idle_session: idle_session.map(str::to_owned),
            transaction: transaction.map(str::to_owned),
        }
    }

    #[test]
    fn timeouts_that_a_server_knows_and_uses_are_set() {
        let said = |idle, transaction, mode| settings(idle, transaction).statements(mode);
        // PostgreSQL 13, 14 and 17.
        assert_eq!(said(None, None, Mode::RowLock), None);
        assert_eq!(said(Some("0"), None, Mode::RowLock), None);
        assert_eq!(said(Some("0"), Some("0"), Mode::RowLock), None);
        let (idle, transaction) = ("SET idle_session_timeout = 0", "SET transaction_timeout = 0");
        assert_eq!(said(Some("5min"), None, Mode::Lease).unwrap(), idle);
        assert_eq!(said(Some("3s"), None, Mode::Advisory), None, "its own");
        assert_eq!(said(Some("0"), Some("1min"), Mode::RowLock).unwrap(), transaction);
        assert_eq!(said(Some("1s"), Some("1min"), Mode::Lease).unwrap(), format!("{transaction}; {idle}"));
    }
}
