//! A run inside a run of the same key, which would wait for itself.

use leasehold::{Client, Snapshot, WHOLE};

use crate::exit::{Exit, Failure};
use crate::settings::{Mode, Run, Wait};
use crate::store::Chosen;

/// Set for the program: the key that it runs under.
pub(super) const KEY: &str = "LEASEHOLD_KEY";
/// Set for the program: the token of the hold.
pub(super) const TOKEN: &str = "LEASEHOLD_TOKEN";
/// Set for the program: the URL of the store that has the lock, without its password.
pub(super) const HELD_ON: &str = "LEASEHOLD_HELD_ON";

/// Refuses to wait for a lock that the run around this one holds: that one waits for us.
///
/// The environment alone does not tell. It outlives the run around us in programs that go on in the background, and
/// another store may have the same key. So the store must show the token of that run among the holders, and must be the
/// one that has the lock, because the tokens of two databases can be the same small number.
pub(super) async fn refuse(settings: &Run, store: &Chosen, client: &Client) -> Result<(), Failure> {
    let key = settings.key.as_str();
    let is = |name, value: &str| std::env::var(name).is_ok_and(|variable| variable == value);
    if settings.wait == Wait::Not || !is(KEY, key) || !is(HELD_ON, &store.shown) {
        return Ok(());
    }
    let token = std::env::var(TOKEN).ok().and_then(|token| token.parse().ok());
    // A store that cannot be asked says so when the lock is acquired.
    let (Some(token), Ok(Some(now))) = (token, client.inspect(key).await) else { return Ok(()) };
    if !waits_for(&settings.mode, token, &now) {
        return Ok(());
    }
    let message = format!(
        "\"{key}\" is held by the `leasehold run` that started this program (token {token}), and would never be free: use \
         another key, or run the command without `leasehold`"
    );
    Err(Failure::new(Exit::Usage, message))
}

/// Whether a claim of this mode has to wait until the hold with this token ends.
fn waits_for(mode: &Mode, token: u64, now: &Snapshot) -> bool {
    let Some(outer) = now.holders.iter().find(|holder| holder.token == token) else { return false };
    let (wanted, limit) = match mode {
        Mode::Exclusive | Mode::Job { .. } | Mode::Leader { .. } => (WHOLE, WHOLE),
        Mode::Shared => (1, WHOLE),
        Mode::Permits { wanted, of } => (*wanted, *of),
    };
    // Another kind of lock is refused by the store.
    let is_same_kind = now.limit == limit;
    let fits = outer.units.saturating_add(wanted) <= now.effective_limit;
    // A claim that waits for a lock waits for every holder of it, and we would queue behind it.
    is_same_kind && (!fits || (limit == WHOLE && !now.waiters.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::{Memory, Result};

    use super::*;

    const PERMIT: Mode = Mode::Permits { wanted: 1, of: 2 };
    const ALL_PERMITS: Mode = Mode::Permits { wanted: 2, of: 2 };

    #[tokio::test]
    async fn only_what_cannot_fit_beside_the_outer_hold_waits_for_it() -> Result<()> {
        let client = Client::new(Memory::new()).await?;
        let (lock, shared) =
            (client.mutex("lock").acquire().await?, client.rwlock("shared").read().acquire().await?);
        let permit = client.semaphore("permits", 2).permits(1).acquire().await?;
        let verdict = async |key, token, mode: &Mode| {
            waits_for(mode, token, &client.inspect(key).await.unwrap().unwrap())
        };
        let leader = Mode::Leader { value: String::new() };
        for (key, token, mode, expected) in [
            ("lock", lock.token(), &Mode::Exclusive, true),
            ("lock", lock.token(), &Mode::Shared, true),
            ("lock", lock.token(), &leader, true),
            ("lock", lock.token() + 1, &Mode::Exclusive, false),
            ("lock", lock.token(), &PERMIT, false),
            ("shared", shared.token(), &Mode::Shared, false),
            ("shared", shared.token(), &Mode::Exclusive, true),
            ("permits", permit.token(), &PERMIT, false),
            ("permits", permit.token(), &ALL_PERMITS, true),
        ] {
            assert_eq!(verdict(key, token, mode).await, expected, "{key} {mode:?}");
        }
        let writer = client.mutex("shared");
        let waiting = tokio::spawn(async move { writer.acquire().await });
        while client.inspect("shared").await?.is_some_and(|now| now.waiters.is_empty()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(verdict("shared", shared.token(), &Mode::Shared).await, "behind the writer");
        waiting.abort();
        Ok(())
    }
}
