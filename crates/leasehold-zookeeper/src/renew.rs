//! A round of renewal: one heartbeat for the session, and one look at what it carries.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures_util::future::{join_all, join3, try_join_all};
use leasehold_core::{Answer, Claim, Key, Result};

use crate::bell::heed;
use crate::fault::{is_over, said};
use crate::names::Name;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::turn::{self, First};

/// Renews claims that are all on one session.
pub(crate) async fn renew(sessions: Arc<Sessions>, claims: Vec<Claim>) -> Result<Vec<Answer>> {
    let Some(first) = claims.first() else { return Ok(Vec::new()) };
    let (session, is_new) = match sessions.open_one(first).await {
        Some(session) => {
            session.touch();
            (session, false)
        }
        // What has a lease of its own is still there.
        None => (sessions.of(first).await?, true),
    };
    let present = if is_new { Some(HashSet::new()) } else { beat(&session, &claims, first.round).await? };
    let mut answers: Vec<Option<Answer>> = claims
        .iter()
        .map(|claim| match &present {
            _ if !session.carries(claim) => None,
            Some(present) => held(&session, claim, present),
            None => Some(Answer::Gone),
        })
        .collect();
    let mut rest: BTreeMap<&Key, Vec<Claim>> = BTreeMap::new();
    for (claim, _) in claims.iter().zip(&answers).filter(|(_, answer)| answer.is_none()) {
        rest.entry(&claim.key).or_default().push(claim.clone());
    }
    let settled = try_join_all(rest.iter().map(|(key, claims)| session.settle(key, claims, None))).await?;
    let settled: BTreeMap<_, _> = rest
        .values()
        .flatten()
        .zip(settled.into_iter().flat_map(|(answers, _)| answers))
        .map(|(claim, answer)| (claim.id, answer))
        .collect();
    for (claim, answer) in claims.iter().zip(&mut answers) {
        if answer.is_none() {
            *answer = settled.get(&claim.id).cloned();
        }
        if matches!(answer, Some(Answer::Waiting(_))) {
            turn::expect(&session, claim, First::Nothing);
        }
    }
    Ok(answers.into_iter().map(|answer| answer.unwrap_or(Answer::Gone)).collect())
}

/// Writes something through the leader and lists what the session has; `None` when it is over. What the client does not
/// know, although it is older than this round, is withdrawn.
async fn beat(session: &Arc<Session>, claims: &[Claim], round: u64) -> Result<Option<HashSet<String>>> {
    let mut write = session.zk.new_multi_writer();
    let node = format!("{}/{}", session.clients(), session.node);
    write.add_check_version(&node, -1).map_err(said)?;
    let (locks, written) = (session.locks(), write.commit());
    let listed = session.zk.list_ephemerals(&locks);
    let rung = session.zk.check_stat(&node);
    let (written, listed, rung) = join3(written, listed, rung).await;
    match written.map_err(zookeeper_client::Error::from) {
        Ok(_) => {}
        Err(fault) if is_over(&fault) => return Ok(None),
        // Somebody deleted the session's node. It is only a bell: the write went through the leader as well.
        Err(zookeeper_client::Error::NoNode) => {}
        Err(fault) => return Err(said(fault)),
    }
    if let Some(stat) = rung.map_err(said)? {
        heed(session, &stat).await;
    }
    let present: HashSet<String> = listed.map_err(said)?.into_iter().collect();
    let known: HashSet<_> = claims.iter().map(|claim| claim.id).collect();
    let ghosts = present.iter().filter(|path| {
        let name = path.rsplit('/').next().and_then(Name::parse);
        name.is_some_and(|name| !known.contains(&name.id) && name.round < round)
    });
    join_all(ghosts.map(|path| session.zk.delete(path, None))).await;
    Ok(Some(present))
}

/// The answer about a claim that holds on the session, or was never there; `None` when the lock must be looked at.
fn held(session: &Session, claim: &Claim, present: &HashSet<String>) -> Option<Answer> {
    let table = session.own();
    let Some(own) = table.get(&claim.id) else {
        let id = claim.id;
        let is_there =
            |path: &String| path.rsplit('/').next().and_then(Name::parse).is_some_and(|name| name.id == id);
        return if present.iter().any(is_there) { None } else { Some(Answer::Gone) };
    };
    // Not there under the name that we know: gone, or it has another one since.
    let is_there = own.is_held() && present.contains(&own.path);
    is_there.then(|| own.granted(session.lease(claim, claim.lease)))
}
