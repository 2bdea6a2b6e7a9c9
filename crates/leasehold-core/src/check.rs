//! What a store found when it looked at the settings its promises rest on.
//!
//! A store reads those settings when it connects and puts one [`Check`] per setting into
//! [`Info::checks`](crate::Info::checks). A setting that voids exclusion or tokens refuses the connection. A setting
//! that weakens a promise is logged once, and `Info` states the weaker promise.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// One setting of a server or a file system, what the store found there, and what follows from it.
///
/// ```
/// use leasehold_core::{Check, Severity};
/// let check = Check::warning("sync_binlog", "0")
///     .effect("a power cut can forget the last grants")
///     .remedy("set sync_binlog = 1 on the server");
/// assert_eq!(check.severity, Severity::Warning);
/// let shown = "sync_binlog is 0: a power cut can forget the last grants; set sync_binlog = 1 on the server";
/// assert_eq!(check.to_string(), shown);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// The setting, by the name that its administrator knows.
    pub name: String,
    /// The value that the store found.
    pub found: String,
    /// What follows for locks and tokens; empty if the setting is as it should be.
    pub effect: String,
    /// What to change, and where; empty if there is nothing to change.
    pub remedy: String,
    /// How bad it is.
    pub severity: Severity,
}

/// How bad a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Ok,
    /// A promise is weaker than usual. `Info` says which.
    Warning,
    /// Exclusion or tokens would mean nothing, so the store refuses to connect.
    Refused,
}

impl Check {
    /// A setting that is as it should be.
    pub fn ok(name: impl Into<String>, found: impl ToString) -> Self {
        Self::new(name, found, Severity::Ok)
    }

    /// A setting that weakens a promise.
    pub fn warning(name: impl Into<String>, found: impl ToString) -> Self {
        Self::new(name, found, Severity::Warning)
    }

    /// A setting with which the store must not be used.
    pub fn refused(name: impl Into<String>, found: impl ToString) -> Self {
        Self::new(name, found, Severity::Refused)
    }

    fn new(name: impl Into<String>, found: impl ToString, severity: Severity) -> Self {
        let (effect, remedy) = (String::new(), String::new());
        Self { name: name.into(), found: found.to_string(), effect, remedy, severity }
    }

    /// Says what follows from it.
    #[must_use]
    pub fn effect(mut self, effect: impl Into<String>) -> Self {
        self.effect = effect.into();
        self
    }

    /// Says what to change.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Refuses the first setting that must be refused; otherwise logs each warning. A store calls this once,
    /// when it has connected.
    ///
    /// ```
    /// use leasehold_core::{Check, ErrorKind};
    /// let checks = [Check::ok("appendonly", "yes"), Check::refused("maxmemory-policy", "allkeys-lru")];
    /// assert_eq!(Check::judge(&checks, "redis").unwrap_err().kind(), ErrorKind::Invalid);
    /// ```
    ///
    /// # Errors
    /// `Invalid`, naming the setting and its remedy.
    pub fn judge(checks: &[Self], store: &'static str) -> Result<()> {
        // A store that is refused makes no promise, so there is none to weaken.
        if let Some(check) = checks.iter().find(|check| check.severity == Severity::Refused) {
            return Err(Error::new(ErrorKind::Invalid, check.to_string()).at(store));
        }
        for check in checks.iter().filter(|check| check.severity == Severity::Warning) {
            tracing::warn!(store, setting = check.name, found = check.found, "{check}");
        }
        Ok(())
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.name, self.found)?;
        if !self.effect.is_empty() {
            write!(f, ": {}", self.effect)?;
        }
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Judges the settings of a store that is opened again and again, and logs each warning once.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<HashSet<String>>);

impl Warnings {
    /// Does what [`Check::judge`] does, but leaves out the warnings that were logged before.
    ///
    /// # Errors
    /// As [`Check::judge`].
    pub fn judge(&self, checks: &[Check], store: &'static str) -> Result<()> {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |check: &&Check| check.severity != Severity::Warning || logged.insert(check.to_string());
        let new: Vec<Check> = checks.iter().filter(is_new).cloned().collect();
        Check::judge(&new, store)
    }
}
