//! A round of renewal: one heartbeat for the session, and one look at what it carries.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::{join_all, join3, try_join_all};
use leasehold_core::{Answer, Claim, ClaimId, Key, Place, Result};

use crate::bell::heed;
use crate::fault::{is_over, said};
use crate::names::{Kind, Name};
use crate::own::Own;
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
    let holders = holders(&session, &claims);
    let present = if is_new { Some(HashSet::new()) } else { beat(&session, &claims, first.round).await? };
    let present = present.map(|paths| Present::new(paths, holders));
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

/// The nodes by which this session holds locks alone, before its heartbeat is sent.
fn holders(session: &Session, claims: &[Claim]) -> HashMap<Key, Option<String>> {
    let known = |claim: &Claim| Some((claim.key.clone(), session.lanes.holder(&claim.key)?));
    claims.iter().filter_map(known).collect()
}

/// What a session had when its heartbeat was answered.
struct Present {
    paths: HashSet<String>,
    ids: HashSet<ClaimId>,
    holders: HashMap<Key, Option<String>>,
}

impl Present {
    fn new(paths: HashSet<String>, holders: HashMap<Key, Option<String>>) -> Self {
        let id = |path: &String| path.rsplit('/').next().and_then(Name::parse).map(|name| name.id);
        Self { ids: paths.iter().filter_map(id).collect(), paths, holders }
    }

    /// Whether a claim of this session held the lock alone, and all of it, at some moment since the heartbeat was sent.
    fn is_held(&self, session: &Session, key: &Key) -> bool {
        match (self.holders.get(key), session.lanes.holder(key)) {
            (Some(Some(holder)), Some(_)) if self.paths.contains(holder) => true,
            // It was passed on since.
            (Some(before), Some(Some(now))) => before.as_ref() != Some(&now),
            _ => false,
        }
    }
}

/// The answer about a claim that holds on the session, waits behind another claim of it, or was never there; `None` when
/// the lock must be looked at.
fn held(session: &Session, claim: &Claim, present: &Present) -> Option<Answer> {
    let table = session.own();
    let Some(own) = table.get(&claim.id) else {
        return if present.ids.contains(&claim.id) { None } else { Some(Answer::Gone) };
    };
    // Not there under the name that we know: gone, or it has another one since.
    if own.is_held() && present.paths.contains(&own.path) {
        return Some(own.granted(session.lease(claim, claim.lease)));
    }
    waits_behind_its_own(session, claim, own, present)
}

/// The answer about a claim that waits while another one of its session holds the whole lock. Nobody can be granted
/// anything then, and a look would only get in the way of the session's own hand-overs: what it decides has changed
/// before it is written, so it looks again, once for each of them.
fn waits_behind_its_own(session: &Session, claim: &Claim, own: &Own, present: &Present) -> Option<Answer> {
    let waits = own.waits && own.kind == Kind::Waiting && present.ids.contains(&claim.id);
    if !waits || !present.is_held(session, &claim.key) {
        return None;
    }
    let ahead = session.lanes.ahead(claim)?;
    let lease = session.lease(claim, Some(claim.patience));
    Some(Answer::Waiting(Place { seat: own.seat, ahead, look_in: claim.patience / 3, held: 0, lease }))
}
