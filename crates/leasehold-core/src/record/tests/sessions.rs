//! The adaptor where sessions carry the claims: on the test store with sessions that end by a clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::testing::{MapRecords, Trouble};
use super::super::{
    Joined, Keys, Loaded, RecordStore, Records, SMALL, Session, Sessions, Swap, Swapped, Version,
};
use super::{claim, key};
use crate::capability::Info;
use crate::claim::{Answer, Claim, IfBusy, Inbox, Released};
use crate::clock::{Clock, Moment, TestClock};
use crate::error::Result;
use crate::key::Key;
use crate::store::{Fut, Promotion, Store, Wake, Wakes};

const LEASE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Table {
    /// Who opened it, and until when it lives.
    open: HashMap<Session, (Inbox, Moment)>,
    opened: u64,
    /// The number of the write that created a record.
    created: HashMap<Key, u64>,
    writes: u64,
    inboxes: HashMap<Inbox, Wakes>,
}

/// Records whose numbers come from their writes, and sessions that end when nobody renews them.
#[derive(Clone, Debug)]
struct Carried {
    records: MapRecords,
    clock: Arc<TestClock>,
    table: Arc<Mutex<Table>>,
    /// How long it takes to find out which sessions have ended.
    looks_for: Duration,
}

impl Carried {
    fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        let records = MapRecords::with(clock.clone(), Trouble::default());
        Self { records, clock, table: Arc::default(), looks_for: Duration::ZERO }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lives(&self, session: &Session) -> bool {
        self.table().open.get(session).is_some_and(|(_, until)| *until > self.clock.now())
    }

    fn writes(&self) -> u64 {
        self.table().writes
    }
}

impl Records for Carried {
    fn info(&self) -> &Info {
        self.records.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        self.table().inboxes.insert(inbox, wakes);
        Box::pin(std::future::ready(Ok(())))
    }

    fn load<'a>(&'a self, key: &'a Key) -> Fut<'a, Loaded> {
        Box::pin(async move {
            let loaded = self.records.load(key).await?;
            let created = self.table().created.get(key).copied().unwrap_or(0);
            let writes = self.writes();
            let is_there = loaded.bytes.is_some();
            let (floor, origin) = if is_there { (writes * SMALL, created * SMALL) } else { (0, 0) };
            Ok(Loaded { floor, origin, ..loaded })
        })
    }

    fn guess(&self, _key: &Key) -> Option<Loaded> {
        None
    }

    fn swap<'a>(&'a self, swap: &'a Swap<'a>) -> Fut<'a, Swapped> {
        Box::pin(async move {
            if swap.on.is_some_and(|session| !self.lives(session)) {
                return Ok(Swapped::Over);
            }
            let swapped = self.records.swap(swap).await?;
            if swapped == Swapped::Stale {
                return Ok(swapped);
            }
            let mut table = self.table();
            table.writes += 1;
            let writes = table.writes;
            if swap.seen == Version::ABSENT {
                table.created.insert(swap.key.clone(), writes);
            }
            for news in swap.news {
                let inbox = table.open.get(&news.session).map(|(inbox, _)| *inbox);
                let wakes = inbox.and_then(|inbox| table.inboxes.get(&inbox));
                wakes.iter().for_each(|wakes| news.promoted.iter().for_each(|p| wakes.promoted(p)));
            }
            Ok(Swapped::Done { origin: writes * SMALL })
        })
    }

    fn keys<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Keys> {
        self.records.keys(prefix, cursor)
    }

    fn nudge<'a>(&'a self, _inbox: Inbox, _key: &'a Key) -> Fut<'a, ()> {
        panic!("with sessions everybody is told with the swap")
    }

    fn looks_every(&self) -> Option<Duration> {
        None
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
}

impl Sessions for Carried {
    fn join(&self, inbox: Inbox, lease: Duration) -> Fut<'_, Joined> {
        let now = self.clock.now();
        let mut table = self.table();
        let known = table.open.iter().find(|(_, (of, until))| *of == inbox && *until > now);
        let known =
            known.map(|(session, (_, until))| Joined { session: session.clone(), left: until.since(now) });
        let joined = known.unwrap_or_else(|| {
            table.opened += 1;
            let session = Session(format!("s{}", table.opened).into());
            table.open.insert(session.clone(), (inbox, now + lease));
            Joined { session, left: lease }
        });
        Box::pin(std::future::ready(Ok(joined)))
    }

    fn renew<'a>(&'a self, session: &'a Session) -> Fut<'a, Option<Duration>> {
        let lives = self.lives(session);
        if let Some((_, until)) = self.table().open.get_mut(session).filter(|_| lives) {
            *until = self.clock.now() + LEASE;
        }
        Box::pin(std::future::ready(Ok(lives.then_some(LEASE))))
    }

    fn fence<'a>(&'a self, _session: &'a Session) -> Fut<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn dead<'a>(&'a self, sessions: &'a [Session]) -> Fut<'a, Vec<Session>> {
        std::thread::sleep(self.looks_for);
        self.clock.jump(self.looks_for);
        let dead = sessions.iter().filter(|session| !self.lives(session)).cloned().collect();
        Box::pin(std::future::ready(Ok(dead)))
    }

    fn idle(&self, _session: &Session) {}
}

/// Another process with one client.
fn process(records: &Carried) -> RecordStore<Carried> {
    RecordStore::new(records.clone())
}

fn of(client: u64, mut claim: Claim) -> Claim {
    claim.inbox = Inbox(client);
    claim
}

async fn renewed(store: &impl Store, claim: &Claim) -> Answer {
    store.renew(std::slice::from_ref(claim)).await.unwrap().remove(0)
}

fn token(answer: &Answer) -> u64 {
    match answer {
        Answer::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_ends_with_its_session_and_the_next_one_holds() {
    let records = Carried::new();
    let (one, two) = (process(&records), process(&records));
    let (first, second) = (of(1, claim(1)), of(2, claim(2)));
    let before = token(&one.claim(&first).await.unwrap());
    assert!(matches!(two.claim(&second).await.unwrap(), Answer::Waiting(_)));
    tokio::time::advance(LEASE / 2).await;
    assert!(matches!(renewed(&two, &second).await, Answer::Waiting(_)));
    tokio::time::advance(LEASE / 2).await;
    assert!(token(&renewed(&two, &second).await) > before);
    assert_eq!(renewed(&one, &first).await, Answer::Gone);
}

/// The record is read before the session has ended, and the answer about the session comes after that.
#[tokio::test(start_paused = true)]
async fn slow_look_at_a_session_shortens_no_lock_delay() {
    let (delay, look, margin) =
        (Duration::from_secs(1), Duration::from_millis(60), Duration::from_millis(30));
    let records = Carried::new();
    let slow = Carried { looks_for: look, ..records.clone() };
    let ends_at = records.clock.now() + LEASE;
    let dying = Claim { lock_delay: delay, ..of(1, claim(1)) };
    token(&process(&records).claim(&dying).await.unwrap());
    records.clock.jump(LEASE - margin);
    let attempt = |id| Claim { if_busy: IfBusy::Leave, ..of(2, claim(id)) };
    assert_eq!(process(&slow).claim(&attempt(2)).await.unwrap(), Answer::Busy);
    assert!(!records.lives(&Session("s1".into())), "the session ended while the store looked at it");
    records.clock.jump((ends_at + delay).since(records.clock.now()) - Duration::from_millis(1));
    assert_eq!(
        process(&records).claim(&attempt(3)).await.unwrap(),
        Answer::Busy,
        "the lock delay has not ended"
    );
    records.clock.jump(look * 2);
    token(&process(&records).claim(&attempt(4)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn one_renewal_keeps_all_claims_of_a_session() {
    let records = Carried::new();
    let (one, two) = (process(&records), process(&records));
    let mut other = of(1, claim(2));
    other.key = Key::new("orders/43").unwrap();
    let both = [of(1, claim(1)), other];
    for claim in &both {
        one.claim(claim).await.unwrap();
    }
    for _ in 0..4 {
        tokio::time::advance(LEASE / 2).await;
        let answers = one.renew(&both).await.unwrap();
        assert!(matches!(answers[..], [Answer::Granted(_), Answer::Granted(_)]), "{answers:?}");
    }
    let mut busy = of(2, claim(3));
    busy.if_busy = IfBusy::Leave;
    assert_eq!(two.claim(&busy).await.unwrap(), Answer::Busy);
}

#[tokio::test(start_paused = true)]
async fn what_a_renewal_does_not_name_is_withdrawn_if_it_is_older() {
    let records = Carried::new();
    let store = process(&records);
    let (mut known, ghost) = (of(1, claim(1)), of(1, claim(2)));
    store.claim(&known).await.unwrap();
    store.claim(&ghost).await.unwrap();
    known.round = 1;
    renewed(&store, &known).await;
    assert_eq!(store.release(&ghost, None).await.unwrap(), Released::Gone);
    assert_eq!(store.release(&known, None).await.unwrap(), Released::Held);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_over_is_replaced_for_the_next_claim() {
    let records = Carried::new();
    let store = process(&records);
    let before = token(&store.claim(&of(1, claim(1))).await.unwrap());
    tokio::time::advance(LEASE).await;
    assert!(token(&store.claim(&of(1, claim(2))).await.unwrap()) > before);
}

#[tokio::test(start_paused = true)]
async fn a_busy_attempt_and_a_renewal_write_nothing() {
    let records = Carried::new();
    let (one, two) = (process(&records), process(&records));
    let (held, mut busy) = (of(1, claim(1)), of(2, claim(2)));
    one.claim(&held).await.unwrap();
    let before = records.writes();
    busy.if_busy = IfBusy::Leave;
    assert_eq!(two.claim(&busy).await.unwrap(), Answer::Busy);
    assert!(matches!(renewed(&one, &held).await, Answer::Granted(_)));
    assert_eq!(records.writes(), before, "{:?}", records.records.raw(&key()));
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_over_a_record_that_went() {
    let records = Carried::new();
    let store = process(&records);
    let mut last = 0;
    for id in 1..5 {
        let claim = of(1, claim(id));
        let next = token(&store.claim(&claim).await.unwrap());
        assert!(next > last, "{next} after {last}");
        last = next;
        store.release(&claim, None).await.unwrap();
        assert_eq!(records.records.raw(&key()), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_withdrawn_is_refused_when_it_comes_late() {
    let records = Carried::new();
    let store = process(&records);
    store.release(&of(1, claim(1)), Some(Duration::from_secs(5))).await.unwrap();
    assert_eq!(store.claim(&of(1, claim(1))).await.unwrap(), Answer::Gone);
    assert_eq!(records.records.raw(&key()), None);
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Promotion>>);

impl Wake for Heard {
    fn promoted(&self, promotion: &Promotion) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(promotion.clone());
    }

    fn look(&self, _key: &Key) {}

    fn look_all(&self) {}

    fn is_gone(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_next_in_another_process_is_told_with_the_release() -> Result<()> {
    let records = Carried::new();
    let (one, two) = (process(&records), process(&records));
    let heard = Arc::new(Heard::default());
    two.open(Inbox(2), heard.clone()).await?;
    let (first, second) = (of(1, claim(1)), of(2, claim(2)));
    one.claim(&first).await?;
    two.claim(&second).await?;
    one.release(&first, None).await?;
    let told = heard.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(
        told.iter().map(|told| told.token).collect::<Vec<_>>(),
        [token(&renewed(&two, &second).await)]
    );
    Ok(())
}
