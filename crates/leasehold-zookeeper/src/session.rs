//! One session on the servers: it carries the claims of one client with one length of lease.

use std::collections::HashMap;
use std::sync::atomic::AtomicI32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{join, join_all};
use leasehold_core::{Claim, ClaimId, Error, ErrorKind, Key, Result, Wakes};
use tokio::sync::watch;
use tokio::time::Instant;
use zookeeper_client::{Acls, Client, CreateMode, Error as Fault, MultiWriteResult, SessionState, Stat};

use crate::fault::{Failed, said};
use crate::lane::Lanes;
use crate::names::{self, Kind, Name};
use crate::note::Note;
use crate::own::Own;
use crate::plan::{Plan, Step};
use crate::unanswered::Unanswered;
use crate::url::Target;
use crate::view::View;

/// Of which nodes the data is wanted, besides those whose end depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Depth<'a> {
    Ids(&'a [ClaimId]),
    All,
}

/// The names of what is in a lock's node, and the server's account of that node.
pub(crate) type Listed = Result<(Vec<String>, Stat), Fault>;

/// A session. It ends, on the servers too, when it is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) zk: Client,
    /// Where everything of ours is.
    pub(crate) base: String,
    /// The name of the session's own node, whose changes it hears of.
    pub(crate) node: String,
    pub(crate) acls: Acls<'static>,
    pub(crate) tick: Duration,
    pub(crate) wakes: Option<Wakes>,
    own: Mutex<HashMap<ClaimId, Own>>,
    /// How long it lives without a renewal.
    pub(crate) length: Duration,
    /// When it was last renewed.
    renewed: Mutex<Instant>,
    /// How often its node had been written to when that was last read.
    pub(crate) heard: AtomicI32,
    pub(crate) lanes: Lanes,
    pub(crate) unanswered: Unanswered,
    /// Says that somebody rang: those who wait look again.
    pub(crate) rung: watch::Sender<()>,
    /// Set before the driver ends: its watchers panic when it goes while somebody waits for them.
    ended: watch::Sender<bool>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ended.send_replace(true);
    }
}

impl Session {
    pub(crate) fn new(
        zk: Client,
        ended: watch::Sender<bool>,
        target: &Target,
        length: Duration,
        wakes: Option<Wakes>,
    ) -> Self {
        Self {
            base: target.base.clone(),
            node: format!("{:016x}", zk.session_id().0),
            acls: target.acls(),
            tick: target.tick,
            wakes,
            own: Mutex::default(),
            length,
            renewed: Mutex::new(Instant::now()),
            heard: AtomicI32::new(0),
            lanes: Lanes::default(),
            unanswered: Unanswered::default(),
            rung: watch::Sender::new(()),
            ended,
            zk,
        }
    }

    /// Whether it has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.zk.state();
        *self.ended.borrow()
            || matches!(state, SessionState::Expired | SessionState::Closed | SessionState::AuthFailed)
    }

    /// Ends it: it is not to be used any more, and goes when nobody does.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Says when it ends.
    pub(crate) fn ending(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// Whether a claim lives and ends with the session. Not if it is to live for longer than sessions can, or by itself.
    pub(crate) fn carries(&self, claim: &Claim) -> bool {
        claim.count.is_none() && claim.lease.is_some_and(|lease| lease <= self.zk.session_timeout())
    }

    /// A claim as the rule sees it: while it waits, or is carried, the session ends it and nothing else.
    pub(crate) fn ruled(&self, claim: &Claim) -> Claim {
        let carried = claim.on_session();
        if self.carries(claim) { carried } else { Claim { lease: claim.lease, ..carried } }
    }

    /// How long the session surely lives after a write of its own went through the leader, counted from when that was
    /// sent.
    ///
    /// Not the whole timeout: a follower tells the leader only every half tick which sessions it has heard from. So a
    /// write proves that the leader knows of what we sent a tick before it; and the driver sends something at least every
    /// fifth of the timeout (a ping after 3/20, looked at every 1/20).
    pub(crate) fn lives_for(&self) -> Duration {
        let timeout = self.zk.session_timeout();
        timeout.mul_f64(0.8).saturating_sub(self.tick.min(timeout / 4))
    }

    /// The timeout to ask for, so that a session [lives for](Self::lives_for) that long.
    pub(crate) fn timeout_for(lease: Duration, tick: Duration) -> Duration {
        lease.div_f64(0.55).min((lease + tick).div_f64(0.8))
    }

    /// The claims that are on it, or that it looks after.
    pub(crate) fn own(&self) -> MutexGuard<'_, HashMap<ClaimId, Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its client renews it, or uses it while it carries nothing.
    pub(crate) fn touch(&self) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When it ends unless it is renewed.
    pub(crate) fn ends_at(&self) -> Instant {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) + self.length
    }

    /// Where all locks are.
    pub(crate) fn locks(&self) -> String {
        format!("{}/locks", self.base)
    }

    /// Where all sessions have a node.
    pub(crate) fn clients(&self) -> String {
        format!("{}/clients", self.base)
    }

    /// The node of a lock.
    pub(crate) fn lock(&self, key: &Key) -> String {
        format!("{}/locks/{}", self.base, names::encode(key))
    }

    /// Makes the nodes that everything else is in.
    pub(crate) async fn make_base(&self) -> Result<(), Fault> {
        let options = CreateMode::Persistent.with_acls(self.acls);
        self.zk.mkdir(&self.locks(), &options).await?;
        self.zk.mkdir(&self.clients(), &options).await
    }

    /// The server's time in milliseconds. A write: what a follower thinks of the time does not count.
    pub(crate) async fn clock(&self) -> Result<u64, Fault> {
        Ok(self.zk.set_data(&self.base, b"", None).await?.mtime.unsigned_abs())
    }

    /// A lock as it is now. Followers lag behind: ours catches up first.
    pub(crate) async fn load_fresh(&self, path: &str, depth: Depth<'_>) -> Result<View> {
        let (synced, view) = join(self.zk.sync(path), self.load(path, depth)).await;
        synced.map_err(said)?;
        view
    }

    /// A lock as it was when this session wrote last, or later.
    pub(crate) async fn load(&self, path: &str, depth: Depth<'_>) -> Result<View> {
        loop {
            match self.zk.get_children(path).await {
                Ok((children, stat)) => {
                    if let Some(view) = self.read(path, &stat, &children, depth).await? {
                        return Ok(view);
                    }
                }
                Err(Fault::NoNode) => return Ok(View::absent(path.to_owned())),
                Err(fault) => return Err(said(fault)),
            }
        }
    }

    /// What a listing says, and the data of nodes where it is needed. `None` when something has changed since.
    pub(crate) async fn read(
        &self,
        path: &str,
        stat: &Stat,
        children: &[String],
        depth: Depth<'_>,
    ) -> Result<Option<View>> {
        let mut view = View::listed(path, stat, children);
        let is_wanted = |id: &ClaimId| match depth {
            Depth::Ids(ids) => ids.contains(id),
            Depth::All => true,
        };
        let wanted: Vec<usize> = (0..view.nodes.len())
            .filter(|n| view.nodes[*n].name.kind == Kind::Kept || is_wanted(&view.nodes[*n].name.id))
            .collect();
        let data = join_all(wanted.iter().map(|n| self.zk.get_data(&view.nodes[*n].path))).await;
        let mut is_timed = matches!(depth, Depth::All);
        for (n, read) in wanted.into_iter().zip(data) {
            let (data, stat) = match read {
                Ok(read) => read,
                Err(Fault::NoNode) => return Ok(None),
                Err(fault) => return Err(said(fault)),
            };
            let Some(note) = Note::parse(&data) else {
                let message = "written by another version of leasehold: use the same everywhere";
                return Err(Error::new(ErrorKind::Conflict, message));
            };
            let node = &mut view.nodes[n];
            is_timed |= node.name.kind == Kind::Kept && note.lease.is_some();
            node.read = Some((note, stat));
        }
        if is_timed {
            view.now = self.clock().await.map_err(said)?;
        }
        Ok(Some(view))
    }

    /// Writes what was planned for what was seen, all or nothing. Answers the number of the write.
    pub(crate) async fn commit(&self, view: &View, plan: &Plan) -> Result<u64, Failed> {
        match plan.joins() {
            Some((name, note)) => self.queue(&view.path, name, note).await.map(|(seat, _)| seat),
            None => self.transact(view, plan).await,
        }
    }

    /// The same, and what is there afterwards: sent together. The listing is as new as the write.
    pub(crate) async fn commit_and_list(&self, view: &View, plan: &Plan) -> (Result<u64, Failed>, Listed) {
        // Each is sent when it is first polled, so in this order.
        join(self.commit(view, plan), async { self.zk.get_children(&view.path).await }).await
    }

    /// Makes a place at the end of the queue. Answers the number of the write, and the place.
    pub(crate) async fn queue(&self, lock: &str, name: &Name, note: &Note) -> Result<(u64, i32), Failed> {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls);
        match self.zk.create(&format!("{lock}/{name}"), &note.bytes(), &options).await {
            // It is a number of 32 bits that overflows, whatever the driver makes of it.
            Ok((stat, turn)) => Ok((stat.czxid.unsigned_abs(), turn.into_i64() as i32)),
            // The lock's node has gone, because nobody was on it any more.
            Err(Fault::NoNode) => Err(Failed::Overtaken),
            Err(fault) => Err(Failed::Broken(fault)),
        }
    }

    async fn transact(&self, view: &View, plan: &Plan) -> Result<u64, Failed> {
        let mut write = self.zk.new_multi_writer();
        let container = CreateMode::Container.with_acls(self.acls);
        let creates = plan.steps.iter().any(|step| matches!(step, Step::Create(..) | Step::Limit(_)));
        let is_new = creates && view.paths().next().is_none();
        if is_new && view.version.is_some() {
            // Left by somebody whose session ended. Only an empty node goes, so it does not matter whose.
            write.add_delete(&view.path, None)?;
        }
        if is_new {
            write.add_create(&view.path, b"", &container)?;
        }
        for step in &plan.steps {
            match step {
                Step::Create(name, note) => {
                    let mode =
                        if name.kind == Kind::Kept { CreateMode::Persistent } else { CreateMode::Ephemeral };
                    let path = format!("{}/{name}", view.path);
                    write.add_create(&path, &note.bytes(), &mode.with_acls(self.acls))?;
                    self.unanswered.sending(name, &path);
                }
                Step::Limit(name) => {
                    let path = format!("{}/{name}", view.path);
                    write.add_create(&path, b"", &CreateMode::Persistent.with_acls(self.acls))?;
                }
                Step::Delete { path, version } => write.add_delete(path, *version)?,
                Step::Set { path, note, version } => write.add_set_data(path, &note.bytes(), *version)?,
            }
        }
        let deletes = plan.steps.iter().any(|step| matches!(step, Step::Delete { .. }));
        if plan.takes && !is_new && !deletes {
            // The lock's node may go and come back with the same version, but not while somebody is on it.
            if let Some(path) = view.paths().next() {
                write.add_check_version(path, -1)?;
            }
        }
        if plan.bumps {
            let expected = view.version.filter(|_| plan.takes && !is_new);
            write.add_set_data(&view.path, b"", expected)?;
        }
        if plan.leaves_nothing {
            write.add_delete(&view.path, None)?;
        }
        let results = write.commit().await.map_err(|error| Failed::of(error, is_new))?;
        for step in &plan.steps {
            if let Step::Create(name, _) = step {
                self.unanswered.answered(&name.id);
            }
        }
        let number = results.iter().find_map(|result| match result {
            MultiWriteResult::SetData { stat } => Some(stat.mzxid.unsigned_abs()),
            _ => None,
        });
        Ok(number.unwrap_or(0))
    }
}
