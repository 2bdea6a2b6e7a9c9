//! Panics by trial: a task that panics in the background fails its trial, too.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, Once, PoisonError};

static HEARD: LazyLock<Mutex<HashMap<String, String>>> = LazyLock::new(Mutex::default);

/// From now on remembers panics by the name of their thread; the runtime of a trial names its threads.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default().to_owned();
            let mut heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
            heard.entry(name).or_insert_with(|| panic.to_string());
        }));
    });
}

/// The first panic on this trial's threads.
pub(crate) fn of(trial: &str) -> Option<String> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).remove(trial)
}
