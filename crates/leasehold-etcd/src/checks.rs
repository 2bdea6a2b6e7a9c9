//! The settings of a cluster that our promises rest on, as far as a member tells them.

use leasehold_core::Check;
use leasehold_core::url::Login;

use crate::wire::message::Status;

/// The oldest version that the tests run on.
const TESTED: (u64, u64) = (3, 4);

/// The first versions of each minor release that check rights inside nested transactions: advisories
/// GHSA-rfx7-8w68-q57q and GHSA-x35m-3gp4-4fh5.
const CHECKS_RIGHTS: [(u64, u64, u64); 3] = [(3, 4, 44), (3, 5, 30), (3, 6, 11)];

/// What a setting is that a member does not tell.
const UNKNOWN: &str = "unknown";

/// One check per setting. Without a status, for instance because this user may not ask for it, most are unknown.
pub(crate) fn checks(status: Option<&Status>, login: &Login) -> Vec<Check> {
    let found = status.map(|status| status.version.as_str());
    vec![
        auth(found, login),
        version(found),
        alarms(status),
        Check::ok("experimental-enable-lease-checkpoint", UNKNOWN)
            .effect("if it is on, a lease of more than 5 minutes can end early after a change of leader")
            .remedy("use leases of at most 5 minutes, or leave it off"),
        Check::ok("unsafe-no-fsync", UNKNOWN)
            .effect("if it is on, a power cut can forget the last grants and tokens")
            .remedy("leave it off"),
    ]
}

fn auth(version: Option<&str>, login: &Login) -> Check {
    const NAME: &str = "auth";
    if login.user.is_none() {
        return Check::ok(NAME, "no user in the URL");
    }
    let Some(version) = version else { return Check::ok(NAME, "enabled") };
    let (major, minor, patch) = numbers(version);
    let is_same = |(x, y, _): &&(u64, u64, u64)| (*x, *y) == (major, minor);
    let first = CHECKS_RIGHTS.iter().find(is_same).copied().unwrap_or((3, 7, 0));
    match (major, minor, patch) >= first {
        true => Check::ok(NAME, "enabled"),
        false => Check::warning(NAME, "enabled")
            .effect(format!(
                "etcd {version} does not check rights inside transactions: every user can change locks"
            ))
            .remedy("use etcd 3.4.44, 3.5.30, 3.6.11 or newer"),
    }
}

/// Major, minor and patch number.
fn numbers(version: &str) -> (u64, u64, u64) {
    let mut numbers = version.split(['.', '-', '+']).map(|number| number.parse::<u64>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

fn version(version: Option<&str>) -> Check {
    const NAME: &str = "version";
    let Some(version) = version else { return Check::ok(NAME, UNKNOWN) };
    let (major, minor, _) = numbers(version);
    match (major, minor) >= TESTED {
        true => Check::ok(NAME, version),
        false => Check::warning(NAME, version)
            .effect("this version is older than all that were tested")
            .remedy(format!("use etcd {}.{} or newer", TESTED.0, TESTED.1)),
    }
}

fn alarms(status: Option<&Status>) -> Check {
    const NAME: &str = "alarms";
    let Some(Status { errors, .. }) = status else { return Check::ok(NAME, UNKNOWN) };
    let raised = |alarm: &str| errors.iter().any(|error| error.contains(alarm));
    if raised("CORRUPT") {
        Check::refused(NAME, "CORRUPT")
            .effect("members disagree about what is stored, so two clients can hold one lock")
            .remedy("restore the damaged member, then run `etcdctl alarm disarm`")
    } else if raised("NOSPACE") {
        Check::warning(NAME, "NOSPACE")
            .effect("the cluster refuses all writes, so no lock can be acquired")
            .remedy("compact and defragment the database, then run `etcdctl alarm disarm`")
    } else {
        Check::ok(NAME, "none")
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Severity;

    use super::*;

    #[test]
    fn versions_older_than_the_tested_ones_are_a_warning() {
        for (found, severity) in [
            ("3.3.27", Severity::Warning),
            ("3.4.23", Severity::Ok),
            ("3.10.0", Severity::Ok),
            ("4.0.0-rc.1", Severity::Ok),
            ("", Severity::Warning),
        ] {
            assert_eq!(version(Some(found)).severity, severity, "{found}");
        }
        assert_eq!(version(None).found, UNKNOWN);
    }

    #[test]
    fn versions_that_do_not_check_rights_inside_transactions_are_a_warning() {
        let login = Login { user: Some("app".to_owned()), password: Some("hunter2".to_owned()) };
        for (found, severity) in [
            ("3.3.27", Severity::Warning),
            ("3.4.43", Severity::Warning),
            ("3.4.44", Severity::Ok),
            ("3.5.29", Severity::Warning),
            ("3.5.30", Severity::Ok),
            ("3.6.10", Severity::Warning),
            ("3.6.11", Severity::Ok),
            ("3.7.0-rc.0", Severity::Ok),
        ] {
            assert_eq!(auth(Some(found), &login).severity, severity, "{found}");
        }
        let nobody = Login { user: None, password: None };
        assert_eq!(auth(Some("3.4.23"), &nobody).severity, Severity::Ok);
    }
}
