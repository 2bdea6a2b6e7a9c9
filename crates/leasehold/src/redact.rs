//! Keeping passwords out of everything that people read.
//!
//! Errs on the side of hiding: a password that was not percent-encoded may contain any of `/`, `?` and `@`,
//! so the last `@` of the URL ends the user part, wherever it stands.

use crate::quorum::{is_quorum, split};

/// What a secret is shown as.
const HIDDEN: &str = "***";

/// Names of URL parameters whose value is a secret contain one of these.
const SECRET_PARAMETERS: &[&str] = &["pass", "pwd", "secret", "token", "auth", "credential"];

/// The URL with its passwords replaced by `***`: for messages and logs.
///
/// ```
/// use leasehold::redact;
/// assert_eq!(redact("redis://app:hunter2@db:6379/0"), "redis://app:***@db:6379/0");
/// assert_eq!(redact("sqlite:///var/lib/locks.db"), "sqlite:///var/lib/locks.db");
/// ```
pub fn redact(url: &str) -> String {
    let mut shown = String::with_capacity(url.len());
    let mut rest = url;
    for secret in secrets(url) {
        // Secrets are slices of the URL, in order: cut there, not at another place with the same text.
        let Some(at) = offset(rest, secret) else { continue };
        shown.push_str(&rest[..at]);
        shown.push_str(HIDDEN);
        rest = &rest[at + secret.len()..];
    }
    shown + rest
}

/// `text` without the passwords of `url`: for messages that somebody else wrote about it.
pub(crate) fn scrub(text: &str, url: &str) -> String {
    let mut secrets: Vec<_> = secrets(url).collect();
    // The longest first: one may contain another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN))
}

/// The secrets in a URL, in their order.
fn secrets(url: &str) -> impl Iterator<Item = &str> {
    let urls = if is_quorum(url) { split(url).1 } else { vec![url] };
    urls.into_iter().flat_map(secrets_of_one)
}

fn secrets_of_one(url: &str) -> impl Iterator<Item = &str> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let password = user.and_then(|user| user.split_once(':')).map(|(_, password)| password);
    let parameters = rest.split_once('?').map_or("", |(_, query)| query);
    let in_parameters = parameters.split(['&', '#']).filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let name = name.to_ascii_lowercase();
        // The path of a file with a secret is none, and whoever mistyped it has to see it.
        let is_path = name.ends_with("_file");
        let is_secret = !is_path && SECRET_PARAMETERS.iter().any(|secret| name.contains(secret));
        is_secret.then_some(value)
    });
    password.into_iter().chain(in_parameters).filter(|secret| !secret.is_empty())
}

/// Where `part`, a slice of `whole`, starts in it.
fn offset(whole: &str, part: &str) -> Option<usize> {
    let at = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (at + part.len() <= whole.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_and_nothing_else() {
        for (url, shown) in [
            ("redis://host", "redis://host"),
            ("redis://:hunter2@host:6379/0", "redis://:***@host:6379/0"),
            ("postgres://app:a@b/c?d@host/db", "postgres://app:***@host/db"),
            ("postgres://app@host/db", "postgres://app@host/db"),
            ("redis://a:a@a", "redis://a:***@a"),
            ("consul://h:8500?token=abc&dc=x", "consul://h:8500?token=***&dc=x"),
            ("redis://u:p@h?Password=q#f", "redis://u:***@h?Password=***#f"),
            ("sqlite:///tmp/a@b.db?sync=full", "sqlite:///tmp/a@b.db?sync=full"),
            ("quorum:redis://u:p@a,redis://:q@b", "quorum:redis://u:***@a,redis://:***@b"),
            // A path to a secret is none.
            ("consul://h?token_file=/run/secrets/token", "consul://h?token_file=/run/secrets/token"),
            ("no url at all", "no url at all"),
            ("", ""),
        ] {
            assert_eq!(redact(url), shown, "{url}");
        }
    }

    #[test]
    fn message_about_a_missing_file_names_its_path() {
        let url = "consul://h?token_file=/run/secrets/token";
        let message = "cannot read /run/secrets/token: check the URL and the file's rights";
        assert_eq!(scrub(message, url), message);
    }

    #[test]
    fn a_message_about_the_url_is_scrubbed() {
        let url = "redis://u:hunter2@h?token=hunter";
        assert_eq!(scrub("cannot log in with hunter2 or hunter", url), "cannot log in with *** or ***");
    }
}
