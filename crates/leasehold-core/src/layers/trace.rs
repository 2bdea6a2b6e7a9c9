//! Says what every call to a store asked and how it ended, through `tracing`.
//!
//! Never said: ids (they are secrets), values, labels.

use std::fmt::Display;
use std::time::Duration;

use tracing::{Instrument, Level, Span};

use super::words::{Word, outcome};
use crate::capability::Info;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::key::Key;
use crate::store::{Fut, Page, Snapshot, Store, Wakes};

/// A store with a span around each call: `call` (store, verb, key), at debug level, with one event when it
/// ended (outcome; for an error the whole of it).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, layers::Trace};
/// // RUST_LOG=leasehold=debug, with tracing-subscriber, shows every call to the store
/// let client = Client::new(Trace::new(Memory::new())).await?;
/// client.mutex("orders/42").acquire().await?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Trace<S> {
    inner: S,
}

impl<S: Store> Trace<S> {
    /// Traces what happens on `store`.
    pub fn new(store: S) -> Self {
        Self { inner: store }
    }

    fn span(&self, verb: &'static str, what: impl Display) -> Span {
        let store = self.inner.info().name;
        tracing::span!(target: "leasehold", Level::DEBUG, "call", store, verb, key = %what)
    }
}

/// Runs a call in its span and says how it ended.
fn said<'a, T: Word + Send + 'a>(span: Span, call: Fut<'a, T>) -> Fut<'a, T> {
    let told = async move {
        let result = call.await;
        let outcome = outcome(&result);
        match &result {
            Ok(_) => tracing::debug!(target: "leasehold", outcome, "answered"),
            Err(error) => tracing::debug!(target: "leasehold", outcome, %error, "failed"),
        }
        result
    };
    Box::pin(told.instrument(span))
}

impl<S: Store> Store for Trace<S> {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        said(self.span("open", ""), self.inner.open(inbox, wakes))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        said(self.span("claim", &claim.key), self.inner.claim(claim))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        let what = match claims {
            [one] => one.key.to_string(),
            many => format!("{} claims", many.len()),
        };
        said(self.span("renew", what), self.inner.renew(claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        said(self.span("amend", &claim.key), self.inner.amend(claim, change))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        said(self.span("release", &claim.key), self.inner.release(claim, refuse_for))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        said(self.span("inspect", key), self.inner.inspect(key))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        said(self.span("list", prefix.escape_debug()), self.inner.list(prefix, cursor))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        said(self.span("evict", key), self.inner.evict(key, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Units;
    use crate::memory::Memory;
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Writes every field of spans and events down, one line each.
    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0 += &format!("{field}={value:?} ");
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "leasehold"
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let mut line = Line(String::new());
            span.record(&mut line);
            self.0.lock().unwrap().push(line.0.trim_end().to_owned());
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0.trim_end().to_owned());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[tokio::test]
    async fn a_call_is_told_with_its_key_and_outcome_and_without_secrets() {
        let lines = Lines::default();
        let told = tracing::subscriber::set_default(lines.clone());
        let store = Trace::new(Memory::new());
        let mut claim = Claim::new(Key::new("orders/42").unwrap(), 1, Units::Exactly(1)).unwrap();
        claim.value = Arc::from(*b"hidden");
        store.claim(&claim).await.unwrap();
        let mut other = claim.clone();
        other.limit = 2;
        store.claim(&other).await.unwrap_err();
        drop(told);
        let lines = lines.0.lock().unwrap();
        assert_eq!(
            lines[..2],
            ["store=\"memory\" verb=\"claim\" key=orders/42", "message=answered outcome=\"granted\""]
        );
        assert!(lines[3].contains("outcome=\"conflict\""), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("hidden") || line.contains("id=")), "{lines:?}");
    }
}
