//! Where the directory is, and the one that is open there now.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{Result, Warnings};

use crate::home::Home;
use crate::url::Target;

/// A directory by its path. Nothing is opened before the first use.
#[derive(Debug)]
pub(crate) struct Place {
    target: Target,
    home: Mutex<Option<Arc<Home>>>,
    warnings: Warnings,
}

impl Place {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, home: Mutex::default(), warnings: Warnings::default() }
    }

    /// The directory. One that was removed or replaced is given up: what was in it is lost, and everybody else goes by
    /// the new one.
    pub(crate) fn home(&self) -> Result<Arc<Home>> {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = home.as_ref().filter(|home| home.is_here()) {
            return Ok(home.clone());
        }
        Ok(home.insert(Arc::new(Home::open(&self.target, &self.warnings)?)).clone())
    }

    /// The directory, if it is open.
    pub(crate) fn current(&self) -> Option<Arc<Home>> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, if nobody is opening it.
    pub(crate) fn at_hand(&self) -> Option<Arc<Home>> {
        self.home.try_lock().ok()?.clone()
    }
}
