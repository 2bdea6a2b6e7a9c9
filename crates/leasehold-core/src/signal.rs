//! Loss as a value of its own: our cancellation type, free of any runtime's.

use std::sync::Arc;

use crate::hold::{Hold, Loss, Stage};

/// Tells, anywhere and any number of times, that a lock was lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Loss, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// let signal = guard.signal();
/// client.evict("orders/42", guard.token()).await?;
/// assert_eq!(signal.lost().await, Loss::Gone);
/// assert!(signal.is_lost() && !guard.is_valid());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LossSignal(Arc<Hold>);

impl LossSignal {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self(hold)
    }

    /// Whether it is lost (or released) by now.
    pub fn is_lost(&self) -> bool {
        self.0.stage() != Stage::Held
    }

    /// Waits until it is lost (or released) and says why.
    pub async fn lost(&self) -> Loss {
        self.0.lost().await
    }
}
