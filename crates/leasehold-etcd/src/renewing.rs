//! Renewals: a heartbeat for the session, and a comparison of what it carries with what its client knows.

use std::collections::{BTreeMap, HashMap, HashSet};

use leasehold_core::rule;
use leasehold_core::{Answer, Claim, ClaimId, Key, OpenBook, Result};

use crate::deciding::Matter;
use crate::format::claimed;
use crate::names::{Label, Standing};
use crate::session::{Name, proven};
use crate::state::{Own, State};
use crate::store::{Shared, now};
use crate::wire::message::{Header, KeyValue, Op, Range, Reply, Response, Txn};
use crate::wire::{Connection, Fault, header};
use crate::words::{MOST, all, read};

/// The claims that a session carries, by what they are called, and how they stand.
type Listed = HashMap<(Key, Label), Standing>;

impl Shared {
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Result<Vec<Answer>> {
        let mut sessions: Vec<(Option<Name>, Vec<&Claim>)> = Vec::new();
        for claim in claims {
            let name = Name::of(claim);
            match sessions.iter_mut().find(|(known, _)| *known == name) {
                Some((_, together)) => together.push(claim),
                None => sessions.push((name, vec![claim])),
            }
        }
        let known: &HashSet<ClaimId> = &claims.iter().map(|claim| claim.id).collect();
        let mut answers: HashMap<ClaimId, Answer> = HashMap::new();
        for (name, claims) in &sessions {
            let round = self
                .on_a_member(|member| async move { self.renew_session(&member, *name, claims, known).await });
            answers.extend(round.await?);
        }
        let answers: Vec<Answer> =
            claims.iter().map(|claim| answers.remove(&claim.id).unwrap_or(Answer::Gone)).collect();
        for (claim, _) in claims.iter().zip(&answers).filter(|(_, answer)| **answer == Answer::Gone) {
            self.labels.forget(&claim.id);
        }
        Ok(answers)
    }

    async fn renew_session(
        &self,
        member: &Connection,
        name: Option<Name>,
        claims: &[&Claim],
        known: &HashSet<ClaimId>,
    ) -> Result<Vec<(ClaimId, Answer)>, Fault> {
        let Some(name) = name else {
            // State that no process owns.
            return self.compare(member, claims, &Listed::new()).await.map(|(answers, _)| answers);
        };
        let gone = || claims.iter().map(|claim| (claim.id, Answer::Gone)).collect();
        let Some(id) = self.sessions.get(name) else { return Ok(gone()) };
        let (kept, left) = tokio::join!(member.keep_alive(id), member.time_left(id, true));
        let kept = kept?;
        if kept.ttl <= 0 {
            self.sessions.forget(name, id);
            self.labels.forget_sessions(&[id]);
            return Ok(gone());
        }
        // Without the list the known are looked for everywhere, and the unknown wait for the next round.
        let listed: Listed =
            left.iter().flat_map(|left| &left.keys).filter_map(|name| self.names.claim(name)).collect();
        let (answers, proof) = self.compare(member, claims, &listed).await?;
        let extended = proven(&kept, proof).map(|ttl| name.said(ttl));
        let round = claims.first().map_or(0, |claim| claim.round);
        // Before the first renewal there was none that a claim could be older than.
        let ours: HashSet<(Key, Label)> =
            claims.iter().filter_map(|claim| Some((claim.key.clone(), self.labels.of(&claim.id)?))).collect();
        for ((key, label), standing) in listed.iter().filter(|(name, _)| round > 0 && !ours.contains(name)) {
            self.withdraw_ghost(member, key, label, *standing, known, round).await?;
        }
        Ok(answers.into_iter().map(|(id, answer)| (id, answer.on_session(extended))).collect())
    }

    /// How the claims stand, by a read that needs the majority, and who answered it.
    async fn compare(
        &self,
        member: &Connection,
        claims: &[&Claim],
        listed: &Listed,
    ) -> Result<(Vec<(ClaimId, Answer)>, Header), Fault> {
        let (seen, proof) = self.read_keys(member, claims, listed).await?;
        let mut answers = Vec::new();
        let mut queues: BTreeMap<&Key, Vec<&Claim>> = BTreeMap::new();
        for claim in claims {
            let lock = self.names.lock(&claim.key);
            let label = self.own(claim).label;
            let name = label.map(|label| (claim.key.clone(), label));
            let keys = name.as_ref().and_then(|name| seen.get(name));
            // Listed, and not there: it was promoted or changed since, and has another name now.
            let has_moved = keys.is_none() && name.as_ref().is_some_and(|name| listed.contains_key(name));
            let keys = keys.into_iter().flatten().cloned();
            let state = State::of(&lock, proof.revision, keys).map_err(Fault::Final)?;
            let waits = state.claim(&claim.id).is_some_and(|claimed| claimed.row.waits());
            if name.is_none() || has_moved || waits {
                queues.entry(&claim.key).or_default().push(claim);
                continue;
            }
            let (said, _) = state.play(&lock, |ledger| rule::renew(ledger, &claim.on_session(), now()));
            answers.push((claim.id, said.map_err(Fault::Final)?.answer));
        }
        for (key, waiting) in queues {
            answers.extend(self.look_after(member, key, &waiting).await?);
        }
        Ok((answers, proof))
    }

    /// Those of ours that wait for one lock: who can be granted is, by whoever looks.
    async fn look_after(
        &self,
        member: &Connection,
        key: &Key,
        claims: &[&Claim],
    ) -> Result<Vec<(ClaimId, Answer)>, Fault> {
        let own = claims.iter().map(|claim| self.own(claim)).collect();
        let matter = Matter::about(self.names.lock(key), own);
        let mut seen = self.look(member, &matter).await?;
        let mut answers = Vec::new();
        for claim in claims.iter().map(|claim| claim.on_session()) {
            let rule = |ledger: &mut OpenBook<'_>, now| rule::renew(ledger, &claim, now);
            let (_, plan) = self.plan(&matter, &seen, &rule)?;
            let writes = !plan.ops.is_empty();
            let decided = self.decide(member, &matter, seen.clone(), rule).await?;
            answers.push((claim.id, decided.numbered()));
            if writes {
                seen = self.look(member, &matter).await?;
            }
        }
        Ok(answers)
    }

    /// Reads the keys of claims: where the session says they are, or wherever they can be.
    async fn read_keys(
        &self,
        member: &Connection,
        claims: &[&Claim],
        listed: &Listed,
    ) -> Result<(HashMap<(Key, Label), Vec<KeyValue>>, Header), Fault> {
        let mut ops: Vec<Op> = Vec::new();
        for claim in claims {
            // Who has no name here is looked for by the caller.
            let Some(label) = self.own(claim).label else { continue };
            let (lock, name) = (self.names.lock(&claim.key), (claim.key.clone(), label));
            let known = listed.get(&name).copied();
            for standing in Standing::ALL.into_iter().filter(|it| known.is_none_or(|known| known == *it)) {
                ops.push(read(Range { key: lock.claim(standing, &name.1), ..Range::default() }));
            }
        }
        // Side by side it is a plain read; more than that goes through the log, which is as good a proof.
        let success = if ops.len() <= MOST { ops } else { vec![all(ops)] };
        let seen = member.txn(&Txn { success, ..Txn::default() }).await?;
        let mut found: HashMap<(Key, Label), Vec<KeyValue>> = HashMap::new();
        collect(&seen.responses, &mut |kv| {
            if let Some((name, _)) = self.names.claim(&kv.key) {
                found.entry(name).or_default().push(kv.clone());
            }
        });
        Ok((found, header(seen.header)?))
    }

    /// Ends a claim that its client does not know, unless it is younger than what the client knew.
    async fn withdraw_ghost(
        &self,
        member: &Connection,
        key: &Key,
        label: &Label,
        standing: Standing,
        known: &HashSet<ClaimId>,
        round: u64,
    ) -> Result<(), Fault> {
        let lock = self.names.lock(key);
        let there = member.range(&Range { key: lock.claim(standing, label), ..Range::default() }).await?;
        let Some(kv) = there.kvs.into_iter().next() else { return Ok(()) };
        let ghost = claimed(key, kv).map_err(Fault::Final)?;
        let id = &ghost.row.id;
        if known.contains(id) || ghost.round >= round {
            return Ok(());
        }
        let matter = Matter::about(lock, vec![Own { id: *id, label: Some(label.clone()) }]);
        let seen = self.look(member, &matter).await?;
        self.decide(member, &matter, seen, |ledger, now| rule::release(ledger, id, None, now)).await?;
        Ok(())
    }
}

/// All keys in the replies of a transaction and of those inside it.
fn collect(replies: &[Reply], found: &mut impl FnMut(&KeyValue)) {
    for reply in replies {
        match &reply.response {
            Some(Response::Range(ranged)) => ranged.kvs.iter().for_each(&mut *found),
            Some(Response::Txn(inner)) => collect(&inner.responses, found),
            None => {}
        }
    }
}
