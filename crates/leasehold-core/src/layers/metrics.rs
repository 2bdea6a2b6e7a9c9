//! Counts and times every call to a store, through the `metrics` facade.

use std::time::Duration;

use tokio::time::Instant;

use super::words::{Word, outcome};
use crate::capability::Info;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::key::Key;
use crate::store::{Fut, Page, Snapshot, Store, Wakes};

/// A store whose calls are counted in `leasehold_calls_total` (labels store, call, outcome) and timed in
/// `leasehold_call_seconds` (labels store, call).
///
/// The outcome is that of the answer (`granted`, `waiting`, …), the kind of the error, or `cancelled` when
/// nobody waited for it. Keys are no labels: there may be millions.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, layers::Metrics};
/// let client = Client::new(Metrics::new(Memory::new())).await?;
/// client.mutex("orders/42").acquire().await?.release().await?; // counted by whatever recorder is installed
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Metrics<S> {
    inner: S,
}

impl<S: Store> Metrics<S> {
    /// Counts what happens on `store`.
    pub fn new(store: S) -> Self {
        Self { inner: store }
    }

    fn counted<'a, T: Word + Send + 'a>(&self, call: &'static str, future: Fut<'a, T>) -> Fut<'a, T> {
        let mut under_way =
            UnderWay { store: self.inner.info().name, call, outcome: "cancelled", since: Instant::now() };
        Box::pin(async move {
            let result = future.await;
            under_way.end(outcome(&result));
            result
        })
    }
}

/// A call that is counted when it ends, also when its future is dropped.
struct UnderWay {
    store: &'static str,
    call: &'static str,
    outcome: &'static str,
    since: Instant,
}

impl UnderWay {
    fn end(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Self { store, call, outcome, since } = self;
        let (store, call, outcome) = (*store, *call, *outcome);
        metrics::counter!("leasehold_calls_total", "store" => store, "call" => call, "outcome" => outcome)
            .increment(1);
        metrics::histogram!("leasehold_call_seconds", "store" => store, "call" => call)
            .record(since.elapsed());
    }
}

impl<S: Store> Store for Metrics<S> {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        self.counted("open", self.inner.open(inbox, wakes))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        self.counted("claim", self.inner.claim(claim))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        self.counted("renew", self.inner.renew(claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        self.counted("amend", self.inner.amend(claim, change))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        self.counted("release", self.inner.release(claim, refuse_for))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        self.counted("inspect", self.inner.inspect(key))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        self.counted("list", self.inner.list(prefix, cursor))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        self.counted("evict", self.inner.evict(key, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{IfBusy, Units};
    use crate::memory::Memory;
    use metrics::{
        Counter, CounterFn, Gauge, Histogram, HistogramFn, Key as Name, KeyName, Metadata, Recorder,
        SharedString, Unit,
    };
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    /// How often each series was touched.
    #[derive(Clone, Default)]
    struct Tally(Arc<Mutex<BTreeMap<String, u64>>>);

    struct Series(String, Tally);

    impl Series {
        fn of(name: &Name, tally: &Tally) -> Self {
            let labels: Vec<_> = name.labels().map(|label| label.value()).collect();
            Self(format!("{} {}", name.name(), labels.join(" ")), tally.clone())
        }

        fn touch(&self) {
            *self.1.0.lock().unwrap().entry(self.0.clone()).or_default() += 1;
        }
    }

    impl CounterFn for Series {
        fn increment(&self, _: u64) {
            self.touch();
        }
        fn absolute(&self, _: u64) {}
    }

    impl HistogramFn for Series {
        fn record(&self, _: f64) {
            self.touch();
        }
    }

    impl Recorder for Tally {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, name: &Name, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(Series::of(name, self)))
        }
        fn register_gauge(&self, _: &Name, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }
        fn register_histogram(&self, name: &Name, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::new(Series::of(name, self)))
        }
    }

    #[tokio::test]
    async fn every_call_is_counted_once_by_its_outcome() {
        let tally = Tally::default();
        let recording = metrics::set_default_local_recorder(&tally);
        let store = Metrics::new(Memory::new());
        let claim = || Claim::new(Key::new("k").unwrap(), 1, Units::Exactly(1)).unwrap();
        store.claim(&claim()).await.unwrap();
        let busy = Claim { if_busy: IfBusy::Leave, ..claim() };
        store.claim(&busy).await.unwrap();
        store.claim(&Claim { limit: 2, ..claim() }).await.unwrap_err();
        drop(store.claim(&busy));
        drop(recording);
        let expected = [
            ("leasehold_call_seconds memory claim", 4),
            ("leasehold_calls_total memory claim busy", 1),
            ("leasehold_calls_total memory claim cancelled", 1),
            ("leasehold_calls_total memory claim conflict", 1),
            ("leasehold_calls_total memory claim granted", 1),
        ];
        let tally = tally.0.lock().unwrap();
        assert_eq!(tally.iter().map(|(k, n)| (k.as_str(), *n)).collect::<Vec<_>>(), expected);
    }
}
