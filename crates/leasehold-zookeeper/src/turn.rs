//! Waiting for a claim's turn: one watch per claim, on the one before it.
//!
//! Only the head of the queue watches those who hold. When the one before it is granted its node is replaced, which wakes
//! exactly the next: no release wakes more than one. Who waits behind a claim of its own session needs no watch: whatever
//! becomes of that, the session does it or hears of it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Grant, Promotion, Result};
use tokio::sync::watch;
use zookeeper_client::{EventType, OneshotWatcher};

use crate::fault::said;
use crate::names::Kind;
use crate::own::Turn;
use crate::session::Session;
use crate::view::View;

/// How soon a look that failed is tried again. The client polls too.
const AGAIN: Duration = Duration::from_millis(100);

/// What is known when the waiting begins.
#[derive(Debug)]
pub(crate) enum First {
    Nothing,
    Seen(View),
    /// The news of a claim of the same session that is before it.
    Behind(watch::Receiver<()>),
}

/// Sees to it that the client hears when a claim's turn has come.
pub(crate) fn expect(session: &Arc<Session>, claim: &Claim, first: First) {
    let mut table = session.own();
    let Some(own) = table.get_mut(&claim.id) else { return };
    if own.turn.as_ref().is_some_and(|turn| !turn.0.is_finished()) {
        return;
    }
    let task = tokio::spawn(wait(
        Arc::downgrade(session),
        session.ending(),
        session.rung.subscribe(),
        claim.clone(),
        first,
    ));
    own.turn = Some(Turn(task.abort_handle()));
}

async fn wait(
    session: Weak<Session>,
    mut ending: watch::Receiver<bool>,
    mut rung: watch::Receiver<()>,
    claim: Claim,
    first: First,
) {
    let (mut view, mut behind) = match first {
        First::Nothing => (None, None),
        First::Seen(view) => (Some(view), None),
        First::Behind(news) => (None, Some(news)),
    };
    // The lock without the one that stood before the claim.
    let mut freed = None;
    loop {
        let Some(strong) = session.upgrade().filter(|session| !session.is_over()) else { return };
        let look = match behind.take() {
            Some(news) => Ok(Look::Behind(news)),
            None => look(&strong, &claim, view.take(), freed.take()).await,
        };
        drop(strong);
        match look {
            Ok(Look::Watching(watcher, seen)) => tokio::select! {
                biased;
                _ = ending.wait_for(|ended| *ended) => return,
                Ok(()) = rung.changed() => {}
                event = watcher.changed() => {
                    freed = seen.filter(|_| event.event_type == EventType::NodeDeleted);
                }
            },
            Ok(Look::Behind(mut news)) => tokio::select! {
                biased;
                _ = ending.wait_for(|ended| *ended) => return,
                Ok(()) = rung.changed() => {}
                _ = news.changed() => {}
            },
            Ok(Look::Changed) => {}
            Ok(Look::Over) => return,
            Err(error) => {
                tracing::debug!(%error, key = %claim.key, "cannot look at the queue");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

enum Look {
    /// And what is there once the watched node has gone, if that is all there is to know.
    Watching(OneshotWatcher, Option<View>),
    /// Behind a claim of the same session.
    Behind(watch::Receiver<()>),
    /// Between the look and the watch.
    Changed,
    Over,
}

async fn look(
    session: &Arc<Session>,
    claim: &Claim,
    seen: Option<View>,
    freed: Option<View>,
) -> Result<Look> {
    let view = match seen {
        Some(view) => view,
        None => {
            let (mut answers, view) = session.settle(&claim.key, std::slice::from_ref(claim), freed).await?;
            match answers.pop() {
                Some(Answer::Waiting(_)) => view,
                answer => {
                    tell(session, claim, answer);
                    return Ok(Look::Over);
                }
            }
        }
    };
    if let Some(node) = view.blocker(&claim.id) {
        // What has an end of its own may be ended by others.
        if let Some(own) = session.own().get(&node.name.id).filter(|own| own.kind != Kind::Kept) {
            let is_same = own.path.is_empty() || own.path == node.path;
            return Ok(if is_same { Look::Behind(own.news.subscribe()) } else { Look::Changed });
        }
        let path = node.path.clone();
        let (stat, watcher) = session.zk.check_and_watch_stat(&path).await.map_err(said)?;
        // Who is at the head of the queue when the last one goes can decide by what it has seen: what takes units is
        // written only if nobody took any since. Others have to look who is there.
        let is_next = view.ahead(&claim.id) == 0 && view.is_plain();
        let freed = is_next.then(|| view.without(&path));
        return Ok(if stat.is_some() { Look::Watching(watcher, freed) } else { Look::Changed });
    }
    let watched = session.zk.get_and_watch_children(&view.path).await;
    let (children, stat, watcher) = match watched {
        Ok(watched) => watched,
        Err(zookeeper_client::Error::NoNode) => return Ok(Look::Changed),
        Err(fault) => return Err(said(fault)),
    };
    let is_same = view.version == Some(stat.version) && children.len() == view.paths().count();
    Ok(if is_same { Look::Watching(watcher, None) } else { Look::Changed })
}

/// Tells the client how a claim stands for which it waits.
pub(crate) fn tell(session: &Session, claim: &Claim, answer: Option<Answer>) {
    let Some(wakes) = &session.wakes else { return };
    match answer {
        Some(Answer::Granted(Grant { seat, token, units, .. })) => {
            let (key, inbox) = (claim.key.clone(), claim.inbox);
            wakes.promoted(&Promotion { key, inbox, seat, token, units });
        }
        _ => wakes.look(&claim.key),
    }
}
