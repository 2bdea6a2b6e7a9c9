//! What the judged topologies have in common: servers that trials use one after the other, and a look at what is
//! stored that has nothing of the store in it but its format.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, Lent, Pool, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Error, ErrorKind, Fut, Key, Result, Store};
use leasehold_servers::{Mode, Proxy};
use leasehold_zookeeper::ZooKeeper;
use zookeeper_client::{Client, Error as Fault};

/// Short, but long against a call on a busy machine: what a session lives for is a little longer.
const LEASE: Duration = Duration::from_millis(1500);

/// Some servers.
pub(crate) trait Place: Debug + Send + Sync + 'static {
    /// Starts them. They are used for many trials.
    fn start() -> Self;
    /// What stands between the clients and each of them.
    fn proxies(&self) -> &[Proxy];
    /// Where to look from outside.
    fn ports(&mut self) -> Vec<u16>;
    /// Stops a server without warning, and sees to it that the others go on or that it comes back.
    fn restart(&mut self);
}

/// Judges the store on these servers.
pub(crate) fn judge<P: Place>(name: &'static str) -> ExitCode {
    let pool = Pool::default();
    victim(store).unwrap_or_else(|| run(name, move || Ok(Judged::new(pool.lend(P::start)))))
}

fn store(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(ZooKeeper::from_url(url)?))
}

/// Servers that one trial has for itself.
#[derive(Debug)]
struct Judged<P> {
    place: Lent<P>,
    url: String,
    /// To look from outside.
    eye: tokio::sync::OnceCell<Client>,
}

impl<P: Place> Judged<P> {
    fn new(place: Lent<P>) -> Self {
        let hosts: Vec<String> = place.with(|place| {
            place.proxies().iter().for_each(|proxy| proxy.set(Mode::Pass));
            place.proxies().iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect()
        });
        // Calls may take their time on a busy machine: no case is about this limit.
        let url = format!("zookeeper://{}?tick=200ms&timeout=30s", hosts.join(","));
        Self { place, url, eye: tokio::sync::OnceCell::new() }
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.place.with(|place| place.proxies().iter().for_each(|proxy| proxy.set(mode)));
        Hook::Does(Box::pin(async { Ok(()) }))
    }

    async fn look(&self, key: &Key) -> Result<RawState, Fault> {
        let ports = self.place.with(Place::ports);
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let open = || async move {
            let connector = Client::connector().with_session_timeout(Duration::from_secs(60));
            connector.connect(&hosts.join(",")).await
        };
        let eye = self.eye.get_or_try_init(open).await?;
        let mut state = RawState::default();
        let path = format!("/leasehold/locks/{}", node(key.as_str()));
        eye.sync("/").await?;
        let children = match eye.list_children(&path).await {
            Ok(children) => children,
            Err(Fault::NoNode) => return Ok(state),
            Err(fault) => return Err(fault),
        };
        state.residue = 1 + children.len();
        for child in &children {
            let parts: Vec<&str> = child.split('-').collect();
            let [kind @ ("w" | "h" | "p"), _, _, _, held, wanted, ..] = parts.as_slice() else { continue };
            let number = |text| u64::from_str_radix(text, 16).expect("our names have numbers");
            state.units += number(held);
            state.holders += usize::from(*kind != "w");
            state.waiters += usize::from(number(held) < number(wanted));
        }
        Ok(state)
    }
}

/// A lock's node, as the README says: as in URLs what is not printable, above U+FFFF, or means something in paths.
fn node(name: &str) -> String {
    let is_plain = |c: char| {
        let is_private = ('\u{d7ff}'..='\u{f8ff}').contains(&c) || c >= '\u{fff0}';
        !c.is_control() && !is_private && c != '/' && c != '%' && !(c == '.' && matches!(name, "." | ".."))
    };
    let encode = |c: char| match is_plain(c) {
        true => c.to_string(),
        false => c.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect(),
    };
    name.chars().map(encode).collect()
}

impl<P: Place> Fixture for Judged<P> {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { store(&self.url) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let message = "the test's own look at the server failed";
            self.look(key).await.map_err(|fault| Error::new(ErrorKind::Unavailable, message).because(fault))
        })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn crowd(&self) -> usize {
        200
    }

    fn kill_holder<'a>(&'a self, key: &'a Key, lease: Duration) -> Hook<'a, Killed> {
        Hook::Does(Box::pin(kill_one_that_holds(&self.url, key, lease)))
    }

    fn cut(&self) -> Hook<'_> {
        self.set(Mode::Hold)
    }

    fn heal(&self) -> Hook<'_> {
        self.set(Mode::Pass)
    }

    fn stall(&self) -> Hook<'_> {
        self.set(Mode::Stall)
    }

    fn restart_server(&self) -> Hook<'_> {
        self.place.with(Place::restart);
        Hook::Does(Box::pin(async { Ok(()) }))
    }
}
