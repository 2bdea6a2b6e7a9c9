//! A part of a store for oneself: every key gets a prefix on the way in and loses it on the way out.

use std::sync::Arc;
use std::time::Duration;

use crate::capability::Info;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::store::{Fut, Page, Promotion, Snapshot, Store, Wake, Wakes};

/// A store whose keys all start with `name/`, which its clients never see.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, layers::Namespace};
/// let store = Memory::new();
/// let ours = Client::new(Namespace::new(store.clone(), "billing")?).await?;
/// let all = Client::new(store).await?;
/// let guard = ours.mutex("orders/42").acquire().await?;
/// assert_eq!(guard.key().as_str(), "orders/42");
/// assert_eq!(all.list("").await?[0].key.as_str(), "billing/orders/42");
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Namespace<S> {
    inner: S,
    prefix: Prefix,
}

impl<S: Store> Namespace<S> {
    /// The part of `store` called `name`.
    ///
    /// # Errors
    /// `Invalid` when the name is empty, longer than 256 bytes, or has a slash in it (two names could then
    /// mean the same key; put one namespace around another instead).
    pub fn new(store: S, name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > 256 || name.contains('/') {
            let message = "a namespace is 1 to 256 bytes without a slash: choose another name";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { inner: store, prefix: Prefix(format!("{name}/").into()) })
    }
}

#[derive(Clone, Debug)]
struct Prefix(Arc<str>);

impl Prefix {
    fn add(&self, key: &Key) -> Result<Key> {
        let (name, full) = (&self.0[..self.0.len() - 1], format!("{}{}", self.0, key.as_str()));
        Key::new(&full).map_err(|_| {
            let message = format!(
                "with its namespace {name:?} the key has {} bytes, the most is {}: use a shorter name",
                full.len(),
                Key::MAX
            );
            Error::new(ErrorKind::Invalid, message).on(key)
        })
    }

    fn claim(&self, claim: &Claim) -> Result<Claim> {
        Ok(Claim { key: self.add(&claim.key)?, ..claim.clone() })
    }

    fn change(&self, change: &Change) -> Result<Change> {
        match change {
            Change::Owner { to, refuse_for } => {
                Ok(Change::Owner { to: Box::new(self.claim(to)?), refuse_for: *refuse_for })
            }
            other => Ok(other.clone()),
        }
    }

    /// The key as our clients know it; `None` when it is not one of theirs.
    fn strip(&self, key: &Key) -> Option<Key> {
        key.as_str().strip_prefix(&*self.0).and_then(|key| Key::new(key).ok())
    }

    fn shown(&self, snapshot: Snapshot) -> Option<Snapshot> {
        Some(Snapshot { key: self.strip(&snapshot.key)?, ..snapshot })
    }

    fn error(&self, error: Error) -> Error {
        match error.key().and_then(|key| self.strip(key)) {
            Some(key) => error.renamed(&key),
            None => error,
        }
    }
}

impl<S: Store> Store for Namespace<S> {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        self.inner.open(inbox, Arc::new(Stripped { prefix: self.prefix.clone(), wakes }))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async move {
            let claim = self.prefix.claim(claim)?;
            self.inner.claim(&claim).await.map_err(|e| self.prefix.error(e))
        })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move {
            let claims = claims.iter().map(|claim| self.prefix.claim(claim)).collect::<Result<Vec<_>>>()?;
            self.inner.renew(&claims).await.map_err(|e| self.prefix.error(e))
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move {
            let (claim, change) = (self.prefix.claim(claim)?, self.prefix.change(change)?);
            self.inner.amend(&claim, &change).await.map_err(|e| self.prefix.error(e))
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(async move {
            let claim = self.prefix.claim(claim)?;
            self.inner.release(&claim, refuse_for).await.map_err(|e| self.prefix.error(e))
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move {
            let key = self.prefix.add(key)?;
            let shown = self.inner.inspect(&key).await.map_err(|e| self.prefix.error(e))?;
            Ok(shown.and_then(|shown| self.prefix.shown(shown)))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(async move {
            // The cursor is the inner store's own word, so it passes unchanged.
            let prefix = format!("{}{prefix}", self.prefix.0);
            let page = self.inner.list(&prefix, cursor).await.map_err(|e| self.prefix.error(e))?;
            let resources = page.resources.into_iter().filter_map(|shown| self.prefix.shown(shown)).collect();
            Ok(Page { resources, next: page.next })
        })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(async move {
            let key = self.prefix.add(key)?;
            self.inner.evict(&key, token).await.map_err(|e| self.prefix.error(e))
        })
    }
}

/// The client's sink, told of its own keys only.
#[derive(Debug)]
struct Stripped {
    prefix: Prefix,
    wakes: Wakes,
}

impl Wake for Stripped {
    fn promoted(&self, promotion: &Promotion) {
        if let Some(key) = self.prefix.strip(&promotion.key) {
            self.wakes.promoted(&Promotion { key, ..promotion.clone() });
        }
    }

    fn look(&self, key: &Key) {
        if let Some(key) = self.prefix.strip(key) {
            self.wakes.look(&key);
        }
    }

    fn look_all(&self) {
        self.wakes.look_all();
    }

    fn is_gone(&self) -> bool {
        self.wakes.is_gone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Units;
    use crate::layers::words::Word;
    use crate::memory::Memory;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Wake for Heard {
        fn promoted(&self, promotion: &Promotion) {
            self.0.lock().unwrap().push(format!("promoted {}", promotion.key));
        }
        fn look(&self, key: &Key) {
            self.0.lock().unwrap().push(format!("look {key}"));
        }
        fn look_all(&self) {}
        fn is_gone(&self) -> bool {
            false
        }
    }

    fn claim(key: &str, inbox: u64) -> Claim {
        let claim = Claim::new(Key::new(key).unwrap(), 1, Units::Exactly(1)).unwrap();
        Claim { inbox: Inbox(inbox), ..claim }
    }

    #[tokio::test]
    async fn two_namespaces_do_not_see_each_other() {
        let store = Memory::new();
        let (a, b) = (Namespace::new(store.clone(), "a").unwrap(), Namespace::new(store, "b").unwrap());
        for namespace in [&a, &b] {
            assert_eq!(namespace.claim(&claim("k", 1)).await.unwrap().word(), "granted");
            let page = namespace.list("", None).await.unwrap();
            assert_eq!(page.resources.iter().map(|shown| shown.key.as_str()).collect::<Vec<_>>(), ["k"]);
        }
    }

    #[tokio::test]
    async fn a_client_hears_its_own_names() {
        let heard = Arc::new(Heard::default());
        let store = Namespace::new(Memory::new(), "a").unwrap();
        store.open(Inbox(1), heard.clone()).await.unwrap();
        let (first, second) = (claim("k", 1), claim("k", 1));
        store.claim(&first).await.unwrap();
        store.claim(&second).await.unwrap();
        store.release(&first, None).await.unwrap();
        let token = store.inspect(&second.key).await.unwrap().unwrap().holders[0].token;
        assert!(store.evict(&second.key, token).await.unwrap());
        assert_eq!(*heard.0.lock().unwrap(), ["promoted k", "look k"]);
    }

    #[tokio::test]
    async fn errors_name_the_key_that_the_client_gave() {
        let store = Namespace::new(Memory::new(), "a").unwrap();
        store.claim(&claim("k", 1)).await.unwrap();
        let error = store.claim(&Claim { limit: 2, ..claim("k", 1) }).await.unwrap_err();
        assert_eq!(error.key().unwrap().as_str(), "k");
    }

    #[tokio::test]
    async fn a_key_that_is_too_long_with_its_namespace_is_invalid() {
        let store = Namespace::new(Memory::new(), "billing").unwrap();
        let long = "x".repeat(Key::MAX - "billing/".len());
        assert_eq!(store.claim(&claim(&long, 1)).await.unwrap().word(), "granted");
        let error = store.claim(&claim(&format!("{long}x"), 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.key().unwrap().as_str().len(), long.len() + 1);
    }

    #[test]
    fn a_namespace_has_a_plain_name() {
        for name in ["", "a/b", "a/", &"x".repeat(257)] {
            assert_eq!(Namespace::new(Memory::new(), name).unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        }
    }
}
