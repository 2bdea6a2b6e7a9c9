//! Settings of the server that the store's promises rest on.
//!
//! [`session`] sets what belongs to our own sessions. [`ASK`] reads those settings back, together with the ones that only an
//! administrator can change, and [`checks`] states what follows from each. Nothing is sent from here.

use std::collections::BTreeMap;

use leasehold_core::{Check, Error, ErrorKind, Info, Result, Severity, TokenStrength};
use mysql_async::Row;

use crate::rows::get;

/// Asks for the settings that [`checks`] judges. A setting that the server does not have is not answered.
pub(crate) const ASK: &str = "SHOW SESSION VARIABLES WHERE Variable_name IN ('log_bin', 'sync_binlog', 'binlog_format', \
     'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'read_only', 'super_read_only', 'innodb_read_only', \
     'wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode', 'completion_type', 'autocommit', \
     'tx_isolation', 'transaction_isolation', 'tx_read_only', 'transaction_read_only', 'sql_mode', 'sql_select_limit', \
     'max_statement_time', 'max_execution_time', 'wait_timeout', 'innodb_lock_wait_timeout', 'idle_transaction_timeout', \
     'idle_write_transaction_timeout', 'idle_readonly_transaction_timeout', 'interactive_timeout', \
     'innodb_rollback_on_timeout', 'time_zone')";

/// Asks for the server's clock in microseconds, for [`Found::clock`].
pub(crate) const ASK_CLOCK: &str =
    "SELECT 'clock', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// Asks for the state that [`checks`] judges. It refuses no server, and is not cheap where many clients are connected.
pub(crate) const ASK_STATE: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', \
     'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')";

/// Asks for the engines of the tables, as rows for [`engines`].
pub(crate) const ASK_ENGINES: &str = "SELECT table_name, engine FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name IN ('leasehold_store', 'leasehold_keys', 'leasehold_claims', \
     'leasehold_rows', 'leasehold_refusals', 'leasehold_numbers')";

/// Longer than any table: no read is cut short.
const NO_LIMIT: &str = "18446744073709551615";
/// `NO_ENGINE_SUBSTITUTION` because tables of another engine have no transactions.
const SQL_MODE: &str = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION";

/// On while a server takes no writes of ordinary users. After a switchover it may.
const READ_ONLY: [&str; 3] = ["read_only", "super_read_only", "innodb_read_only"];

/// What [`session`] sets to the same value everywhere, as the server shows it. MySQL and MariaDB have two names for some.
const OURS: [(&str, &str); 12] = [
    ("autocommit", "ON"),
    ("completion_type", "NO_CHAIN"),
    ("idle_readonly_transaction_timeout", "0"),
    ("idle_write_transaction_timeout", "0"),
    ("max_execution_time", "0"),
    ("max_statement_time", "0.000000"),
    ("sql_mode", SQL_MODE),
    ("sql_select_limit", NO_LIMIT),
    ("transaction_isolation", "READ-COMMITTED"),
    ("transaction_read_only", "OFF"),
    ("tx_isolation", "READ-COMMITTED"),
    ("tx_read_only", "OFF"),
];

/// Set by [`session`] to a value that depends on the URL or the lease, or without any effect on us.
const HARMLESS: [&str; 6] = [
    "idle_transaction_timeout",
    "innodb_lock_wait_timeout",
    "innodb_rollback_on_timeout",
    "interactive_timeout",
    "time_zone",
    "wait_timeout",
];

/// The statements that every session of ours starts with: how many seconds it waits for a row, how long it may be silent, and
/// how long with a transaction half-way (0: as long as at all). A client that is stopped there keeps its rows from everybody.
pub(crate) fn session(wait: u64, silence: u64, half_way: u64) -> Vec<String> {
    // Each server reads the settings of the other as a comment.
    let settings = format!(
        "SET SESSION innodb_lock_wait_timeout = {wait}, SESSION wait_timeout = {silence}, SESSION autocommit = 1, \
         SESSION completion_type = 0, SESSION sql_mode = '{SQL_MODE}', SESSION sql_select_limit = {NO_LIMIT} \
         /*M! , SESSION idle_transaction_timeout = {half_way}, SESSION idle_write_transaction_timeout = 0, \
         SESSION idle_readonly_transaction_timeout = 0, SESSION max_statement_time = 0 */ \
         /*!80000 , SESSION max_execution_time = 0 */"
    );
    vec![settings, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE".to_owned()]
}

/// What the server answered, by name.
#[derive(Debug, Default)]
pub(crate) struct Found(BTreeMap<String, String>);

impl Found {
    pub(crate) fn read(rows: &[Row]) -> Result<Self> {
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect::<Result<_>>().map(Self)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some("ON")
    }

    /// The server's clock in microseconds, if that was asked for.
    pub(crate) fn clock(&self) -> Option<u64> {
        self.get("clock")?.parse().ok()
    }

    /// Judges a setting, if the server has it: `None` from `judge` if all is well.
    fn check(&self, name: &str, judge: impl FnOnce(&str) -> Option<Check>) -> Option<Check> {
        let found = self.get(name)?;
        Some(judge(found).unwrap_or_else(|| Check::ok(name, found)))
    }
}

/// What follows from the settings, one check for each that the server has.
pub(crate) fn checks(found: &Found) -> Vec<Check> {
    let mut checks = durability(found);
    checks.extend(exclusion(found));
    checks.extend(OURS.iter().filter_map(|(name, ours)| {
        found.check(name, |found| {
            (found != *ours).then(|| {
                Check::refused(*name, found)
                    .effect(format!("this session set it to {ours}, and the value did not stay"))
                    .remedy("connect to the server itself, without a proxy")
            })
        })
    }));
    checks.extend(HARMLESS.iter().filter_map(|name| found.check(name, |_| None)));
    checks
}

/// Whether the server may forget what it has answered.
fn durability(found: &Found) -> Vec<Check> {
    let has_log = found.is_on("log_bin");
    let forgets = |name: &str, value: &str, better: &str| {
        Check::warning(name, value)
            .effect("a power cut can forget the last grants, although they were answered")
            .remedy(format!("set {name} = {better} on the server"))
    };
    let redo = "innodb_flush_log_at_trx_commit";
    let checks = [
        // 3 syncs at least as often as 1.
        found.check(redo, |value| (!matches!(value, "1" | "3")).then(|| forgets(redo, value, "1"))),
        found.check("innodb_flush_method", |value| {
            matches!(value, "nosync" | "littlesync").then(|| forgets("innodb_flush_method", value, "fsync"))
        }),
        // A transaction that was only prepared is undone unless the binary log has it.
        found.check("sync_binlog", |value| {
            (has_log && value != "1").then(|| forgets("sync_binlog", value, "1"))
        }),
        Some(replicas(found)),
    ];
    checks.into_iter().flatten().collect()
}

/// Whether a replica that takes over may lack the last commits.
fn replicas(found: &Found) -> Check {
    let Some(many) = found.get("Slaves_connected") else { return unknown_replicas(found) };
    let name = "rpl_semi_sync_master_enabled";
    let status = found.get("Rpl_semi_sync_master_status").unwrap_or("OFF");
    let shown = format!("{status} with {many} replicas");
    if status == "ON" || many == "0" {
        return Check::ok(name, shown);
    }
    Check::warning(name, shown)
        .effect("a replica that takes over may lack the last grants")
        .remedy("set rpl_semi_sync_master_enabled = ON, and rpl_semi_sync_slave_enabled on the replicas")
}

/// The same on MySQL, which tells the number of replicas only to accounts with rights that a lock client should not have
/// (`REPLICATION SLAVE`, `PROCESS`).
fn unknown_replicas(found: &Found) -> Check {
    if !found.is_on("log_bin") {
        return Check::ok("replicas", "none, without a binary log");
    }
    if found.is_on("Rpl_semi_sync_source_status") || found.is_on("Rpl_semi_sync_master_status") {
        return Check::ok("replicas", "waited for");
    }
    Check::ok("replicas", "unknown")
        .effect("a replica that takes over may lack the last grants, and tokens then rise by its clock")
        .remedy("if there are any, set rpl_semi_sync_source_enabled = ON, and rpl_semi_sync_replica_enabled on them")
}

/// What would void exclusion or tokens, or make every request fail.
fn exclusion(found: &Found) -> Vec<Check> {
    let read_only = READ_ONLY.map(|name| {
        found.check(name, |value| {
            (value != "OFF").then(|| {
                Check::refused(name, value)
                    .effect("a lock on a replica excludes no client of the primary")
                    .remedy("name the primary in the URL")
            })
        })
    });
    let is_grouped = found.get("group_replication_group_name").is_some_and(|name| !name.is_empty());
    let one_of_many = |name: &str, value: &str| {
        Check::refused(name, value)
            .effect("each node draws tokens of its own, so that they fall from node to node, and no node knows the row locks of another")
            .remedy("use a server that is the only one to take writes")
    };
    let checks = [
        found.check("binlog_format", |value| {
            (found.is_on("log_bin") && value == "STATEMENT").then(|| {
                Check::refused("binlog_format", value)
                    .effect("the server refuses every write of a lock (error 1665)")
                    .remedy("set binlog_format = ROW or MIXED on the server")
            })
        }),
        found.check("wsrep_on", |value| (value != "OFF").then(|| one_of_many("wsrep_on", value))),
        found.check("group_replication_single_primary_mode", |value| {
            let name = "group_replication_single_primary_mode";
            (is_grouped && value != "ON").then(|| one_of_many(name, value))
        }),
    ];
    checks.into_iter().chain(read_only).flatten().collect()
}

/// Logs the warnings, and refuses a server that must be.
///
/// # Errors
/// `Unavailable` for a server that is only read-only: during a switchover a client may connect a moment early. `Invalid` for
/// every other setting.
pub(crate) fn judge(checks: &[Check]) -> Result<()> {
    let is_read_only = |check: &&Check| READ_ONLY.contains(&check.name.as_str());
    let others: Vec<Check> = checks.iter().filter(|check| !is_read_only(check)).cloned().collect();
    Check::judge(&others, "mysql")?;
    match checks.iter().filter(is_read_only).find(|check| check.severity == Severity::Refused) {
        Some(check) => {
            Err(Error::new(ErrorKind::Unavailable, check.to_string()).at("mysql").transient_if(true))
        }
        None => Ok(()),
    }
}

/// Whether the tables have transactions: an administrator, or `enforce_storage_engine`, may have chosen another engine.
pub(crate) fn engines(found: &Found) -> Vec<Check> {
    let judge = |(table, engine): (&String, &String)| {
        let name = format!("ENGINE of {table}");
        if engine.eq_ignore_ascii_case("InnoDB") {
            return Check::ok(name, engine);
        }
        Check::refused(name, engine)
            .effect("without transactions and row locks two clients can hold the same lock")
            .remedy(format!("ALTER TABLE {table} ENGINE = InnoDB"))
    };
    found.0.iter().map(judge).collect()
}

/// What the store promises with these settings.
pub(crate) fn promise(declared: &Info, checks: Vec<Check>) -> Info {
    // Every warning is about commits that can be forgotten. The leap of each connection is what is left of the tokens.
    let weaker = checks.iter().any(|check| check.severity == Severity::Warning);
    let tokens = if weaker { TokenStrength::ClockBound } else { declared.tokens };
    Info { tokens, checks, ..declared.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(all: &[(&str, &str)]) -> Found {
        Found(all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn worst(all: &[(&str, &str)]) -> (Severity, String) {
        let checks = checks(&found(all));
        let worst = checks.into_iter().max_by_key(|check| check.severity).expect("one per setting");
        (worst.severity, worst.name)
    }

    /// MariaDB has no groups, so that only this shows what is said of them.
    #[test]
    fn a_group_with_several_primaries_is_refused() {
        let mode = "group_replication_single_primary_mode";
        let group = ("group_replication_group_name", "aaaaaaaa");
        assert_eq!(worst(&[group, (mode, "OFF")]), (Severity::Refused, mode.to_owned()));
        assert_eq!(worst(&[group, (mode, "ON")]).0, Severity::Ok);
        assert_eq!(worst(&[(mode, "OFF")]).0, Severity::Ok);
    }

    #[test]
    fn a_session_that_is_not_as_it_was_set_is_refused() {
        for (name, ours) in OURS {
            assert_eq!(worst(&[(name, ours)]).0, Severity::Ok, "{name}");
            assert_eq!(worst(&[(name, "other")]), (Severity::Refused, name.to_owned()));
        }
    }

    #[test]
    fn replicas_that_are_waited_for_weaken_nothing() {
        let [many, none] = [("Slaves_connected", "2"), ("Slaves_connected", "0")];
        let [on, off] = [("Rpl_semi_sync_master_status", "ON"), ("Rpl_semi_sync_master_status", "OFF")];
        assert_eq!(worst(&[many, on]).0, Severity::Ok);
        assert_eq!(worst(&[none, off]).0, Severity::Ok);
        assert_eq!(worst(&[many, off]).0, Severity::Warning);
    }

    /// MySQL does not tell a lock client how many replicas are connected.
    #[test]
    fn replicas_of_mysql_are_reported_as_unknown() {
        let about_replicas = |all: &[(&str, &str)]| {
            let checks = checks(&found(all));
            checks
                .into_iter()
                .find(|check| check.name == "replicas")
                .expect("something is said about replicas")
        };
        let log = ("log_bin", "ON");
        let unknown = about_replicas(&[log]);
        assert_eq!((unknown.severity, unknown.found.as_str()), (Severity::Ok, "unknown"));
        assert!(unknown.effect.contains("last grants"), "{unknown}");
        assert!(unknown.remedy.contains("rpl_semi_sync_source_enabled"), "{unknown}");
        for known in [
            &[("log_bin", "OFF")][..],
            &[log, ("Rpl_semi_sync_source_status", "ON")],
            &[log, ("Rpl_semi_sync_master_status", "ON")],
        ] {
            let check = about_replicas(known);
            assert!(check.found != "unknown" && check.effect.is_empty(), "{check}");
        }
    }

    #[test]
    fn read_only_server_may_take_writes_later_and_others_may_not() {
        let kind = |all: &[(&str, &str)]| judge(&checks(&found(all))).map_err(|error| error.kind());
        for name in READ_ONLY {
            assert_eq!(kind(&[(name, "OFF")]), Ok(()));
            assert_eq!(kind(&[(name, "ON")]), Err(ErrorKind::Unavailable), "{name}");
            assert_eq!(kind(&[(name, "ON"), ("wsrep_on", "ON")]), Err(ErrorKind::Invalid), "{name}");
        }
    }
}
