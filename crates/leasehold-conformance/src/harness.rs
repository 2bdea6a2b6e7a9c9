//! One trial per case and store, each on a runtime of its own, none without an end.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock, mpsc};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use leasehold_core::{Error, Result};
use libtest_mimic::{Arguments, Completion, Trial};

use crate::case::{Case, Company};
use crate::cases;
use crate::fixture::Fixture;
use crate::panics;
use crate::scale::Scale;
use crate::scene::Scene;
use crate::verdict::{Stop, Verdict};

/// A trial that takes longer than this hangs, and fails.
const DEADLINE: Duration = Duration::from_secs(240);
/// The same for the long form of the cases that have one.
const SOAK_DEADLINE: Duration = Duration::from_secs(3600);
/// Stores that may be missing, separated by commas.
const ALLOW_MISSING: &str = "LEASEHOLD_ALLOW_MISSING";
/// Asks how long each case takes: a line for each on the standard error.
const TIMES: &str = "LEASEHOLD_TIMES";

/// Judges a store: call it from the `main` of a test with `harness = false`, and return what it returns.
///
/// `make` is called once per trial, inside the trial's tokio runtime. When it fails the store is missing:
/// every trial fails, unless the environment variable `LEASEHOLD_ALLOW_MISSING` names the store.
///
/// The arguments are those of `cargo test`: a filter, `--list`, `--exact`, `--test-threads`, and so on.
pub fn run<F: Fixture>(
    store: &'static str,
    make: impl Fn() -> Result<F> + Send + Sync + 'static,
) -> ExitCode {
    judge_all(store, make, |_| true)
}

/// The same for the cases of these groups only, for another set-up of servers on which the whole suite was seen to
/// pass and would take too long every time. With `LEASEHOLD_SOAK` all cases run.
pub fn run_groups<F: Fixture>(
    store: &'static str,
    groups: &[&str],
    make: impl Fn() -> Result<F> + Send + Sync + 'static,
) -> ExitCode {
    let all = Scale::chosen() == Scale::Soak;
    judge_all(store, make, |group| all || groups.contains(&group))
}

fn judge_all<F: Fixture>(
    store: &'static str,
    make: impl Fn() -> Result<F> + Send + Sync + 'static,
    is_wanted: impl Fn(&str) -> bool,
) -> ExitCode {
    let make: Make = Arc::new(move || Ok(Arc::new(make()?)));
    let cases = cases::all().into_iter().filter(|case| is_wanted(case.group));
    let trials = cases.map(|case| trial(store, &make, case)).collect();
    let mut arguments = Arguments::from_args();
    // More than there are processors: most of a trial is waiting for a lease to end.
    arguments.test_threads.get_or_insert(4);
    libtest_mimic::run(&arguments, trials).exit_code()
}

type Make = Arc<dyn Fn() -> Result<Arc<dyn Fixture>> + Send + Sync>;

fn trial(store: &'static str, make: &Make, case: Case) -> Trial {
    let name = format!("{store}/{case:?}");
    let (make, thread) = (make.clone(), name.clone());
    Trial::ignorable_test(name, move || {
        let began = Instant::now();
        let verdict = judge(store, &thread, make, case);
        if std::env::var_os(TIMES).is_some() {
            // Whoever does not listen has not asked.
            let _ = writeln!(std::io::stderr(), "{:8.3} s {thread}", began.elapsed().as_secs_f64());
        }
        match verdict {
            Ok(()) => Ok(Completion::Completed),
            Err(Stop::Skip(reason)) => Ok(Completion::ignored_with(reason)),
            Err(Stop::Fail(what)) => Err(what.into()),
        }
    })
}

/// Runs a case to its end, or to its deadline.
fn judge(store: &str, name: &str, make: Make, case: Case) -> Verdict {
    static FLOOR: RwLock<()> = RwLock::new(());
    // A failed trial poisons nothing that matters here.
    let _alone =
        (case.company == Company::Alone).then(|| FLOOR.write().unwrap_or_else(PoisonError::into_inner));
    let _among =
        (case.company == Company::Welcome).then(|| FLOOR.read().unwrap_or_else(PoisonError::into_inner));

    panics::listen(name);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).thread_name(name).enable_all().build();
    let runtime = runtime.map_err(|e| Stop::fail(format_args!("no runtime: {e}")))?;
    let (done, verdict) = mpsc::channel();
    let body = async move {
        let fixture = make().map_err(Ended::Missing)?;
        (case.body)(Scene::open(fixture).await?).await.map_err(Ended::from)
    };
    // On a worker, so that a case which blocks its thread cannot block the deadline.
    runtime.spawn(async move { done.send(AssertUnwindSafe(body).catch_unwind().await) });

    let deadline = Scale::chosen().pick(DEADLINE, DEADLINE, SOAK_DEADLINE);
    let verdict = verdict.recv_timeout(deadline);
    runtime.shutdown_timeout(Duration::from_secs(1));
    match (verdict, panics::of(name)) {
        (Err(_), None) => Err(Stop::Fail(format!("not done after {deadline:?}: something hangs"))),
        (_, Some(panic)) => Err(Stop::Fail(panic)),
        (Ok(Ok(Ok(()))), None) => Ok(()),
        (Ok(Ok(Err(Ended::Stop(stop)))), None) => Err(stop),
        (Ok(Ok(Err(Ended::Missing(error)))), None) => {
            let allowed = std::env::var(ALLOW_MISSING).unwrap_or_default();
            Err(missing(store, &error, &allowed))
        }
        (Ok(Err(_)), None) => Err(Stop::Fail("it panicked".to_owned())),
    }
}

/// Runs one case, for tests of the suite itself.
#[cfg(any(test, feature = "mutants"))]
pub(crate) fn judge_for_test(
    name: &str,
    make: impl Fn() -> Result<Arc<dyn Fixture>> + Send + Sync + 'static,
    case: Case,
) -> Verdict {
    judge("test", name, Arc::new(make), case)
}

/// Why a trial did not succeed.
enum Ended {
    Missing(Error),
    Stop(Stop),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// A store that is not there fails the run, unless somebody said that it may be missing.
fn missing(store: &str, error: &Error, allowed: &str) -> Stop {
    if allowed.split(',').any(|name| name.trim() == store) {
        return Stop::skip(format_args!("{store} is missing, and {ALLOW_MISSING} allows it: {error}"));
    }
    Stop::Fail(format!("{store} is missing: {error}; set {ALLOW_MISSING}={store} to go without it"))
}

#[cfg(test)]
mod tests {
    use leasehold_core::{ErrorKind, Fut, Key, Memory, Store};

    use super::*;
    use crate::fixture::RawState;

    #[derive(Debug)]
    struct Plain;

    impl Fixture for Plain {
        fn store(&self) -> Fut<'_, Arc<dyn Store>> {
            Box::pin(async { Ok(Arc::new(Memory::new()) as _) })
        }

        fn raw_state<'a>(&'a self, _key: &'a Key) -> Fut<'a, RawState> {
            Box::pin(async { Ok(RawState::default()) })
        }

        fn lease(&self) -> Duration {
            Duration::from_millis(100)
        }
    }

    fn case(body: impl FnOnce() -> Verdict + Send + 'static) -> Case {
        let body = Box::new(move |_scene| Box::pin(async move { body() }) as _);
        Case { group: "test", name: "test", body, company: Company::Welcome }
    }

    fn plain() -> Result<Arc<dyn Fixture>> {
        Ok(Arc::new(Plain))
    }

    #[test]
    fn a_case_that_does_nothing_wrong_passes() {
        assert!(judge_for_test("harness-passes", plain, case(|| Ok(()))).is_ok());
    }

    #[test]
    fn a_panic_in_the_background_fails_the_trial() {
        let body = || {
            let thread = std::thread::Builder::new().name("harness-panics".to_owned());
            let panicked = thread.spawn(|| panic!("in the background")).unwrap().join();
            assert!(panicked.is_err());
            Ok(())
        };
        let verdict = judge_for_test("harness-panics", plain, case(body));
        assert!(
            matches!(&verdict, Err(Stop::Fail(what)) if what.contains("in the background")),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_missing_store_fails_the_trial() {
        let gone = || Err(Error::new(ErrorKind::Unavailable, "nobody listens"));
        let verdict = judge_for_test("harness-missing", gone, case(|| Ok(())));
        assert!(matches!(&verdict, Err(Stop::Fail(what)) if what.contains("nobody listens")), "{verdict:?}");
    }

    #[test]
    fn a_missing_store_is_ignored_only_when_it_is_named() {
        let error = Error::new(ErrorKind::Unavailable, "nobody listens");
        assert!(matches!(missing("redis", &error, "etcd, redis"), Stop::Skip(_)));
        assert!(matches!(missing("redis", &error, "etcd,rediss"), Stop::Fail(_)));
        assert!(matches!(missing("redis", &error, ""), Stop::Fail(_)));
    }
}
