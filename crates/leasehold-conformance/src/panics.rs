//! Panics by trial: a task that panics in the background fails its trial, too.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};

/// The trials that run, and the first panic on their threads.
static HEARD: LazyLock<Mutex<HashMap<String, Option<String>>>> = LazyLock::new(Mutex::default);

fn heard() -> MutexGuard<'static, HashMap<String, Option<String>>> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on remembers panics on threads with the name of this trial: its runtime names them.
pub(crate) fn listen(trial: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let other = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            match thread.name().and_then(|name| heard().get_mut(name).map(|first| first.is_some())) {
                None => other(panic),
                Some(true) => {}
                Some(false) => {
                    let name = thread.name().unwrap_or_default().to_owned();
                    heard().insert(name, Some(panic.to_string()));
                }
            }
        }));
    });
    heard().insert(trial.to_owned(), None);
}

/// The first panic on this trial's threads.
pub(crate) fn of(trial: &str) -> Option<String> {
    heard().remove(trial).flatten()
}
