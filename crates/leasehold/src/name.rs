//! The name of a store where several are used together.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::quorum::{is_quorum, split};
use crate::redact::redact;

/// The store that a URL names, without users, passwords and the settings of a quorum: the same in every process.
pub(crate) fn name_of(url: &str) -> String {
    if is_quorum(url) {
        let members: Vec<_> = split(url).1.into_iter().map(name_of_one).collect();
        return format!("quorum:{}", members.join(","));
    }
    name_of_one(url)
}

fn name_of_one(url: &str) -> String {
    // Each of these is a store of its own, which no other process has.
    static NAMELESS: AtomicU64 = AtomicU64::new(0);
    let shown = redact(url);
    let Some((scheme, rest)) = shown.split_once(':') else { return shown };
    let scheme = scheme.to_ascii_lowercase();
    let Some(rest) = rest.strip_prefix("//") else { return format!("{scheme}:{rest}") };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    // The order of two stores must not depend on the user.
    let user = authority.rfind('@').map_or(0, |at| at + 1);
    if scheme == "memory" && rest.is_empty() {
        return format!("memory://#{}", NAMELESS.fetch_add(1, Ordering::Relaxed));
    }
    format!("{scheme}://{}", &rest[user..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_place_and_no_user() {
        for (url, name) in [
            ("redis://h1:6379/2", "redis://h1:6379/2"),
            ("REDIS://app:hunter2@h1/2?timeout=5s", "redis://h1/2?timeout=5s"),
            ("postgres://app:a@b/c?d@host/db", "postgres://host/db"),
            ("postgres://app@h1,h2/db", "postgres://h1,h2/db"),
            ("consul://h:8500?token=abc", "consul://h:8500?token=***"),
            ("sqlite:///tmp/a@b.db", "sqlite:///tmp/a@b.db"),
            ("sqlite:locks.db", "sqlite:locks.db"),
            ("memory://tests", "memory://tests"),
            ("quorum:max_lease=9s,redis://u:p@a,redis://b", "quorum:redis://a,redis://b"),
        ] {
            assert_eq!(name_of(url), name, "{url}");
        }
    }

    #[test]
    fn memory_without_a_name_is_another_store_each_time() {
        assert_ne!(name_of("memory://"), name_of("memory://"));
    }
}
