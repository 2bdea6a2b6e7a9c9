//! A member that freezes between its answer to our ping and the first header of the watch.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Inbox, Key, Promotion, Store, Units, WHOLE, Wake};
use leasehold_etcd::Etcd;
use leasehold_servers::etcd::Etcd as Server;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::scene::*;

/// The bytes before the first frame of a client, and before the payload of each frame.
const PREFACE: usize = 24;
const FRAME: usize = 9;
/// The type of a frame that opens a stream.
const HEADERS: u8 = 1;

/// A way to a server on which new connections greet and then hear nothing, while it is told to freeze them.
#[derive(Debug)]
struct Freezing {
    port: u16,
    freezes: Arc<AtomicBool>,
    /// The most requests that came on one frozen connection.
    unanswered: Arc<AtomicUsize>,
    connections: Arc<std::sync::Mutex<Vec<TcpStream>>>,
}

impl Freezing {
    fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (freezes, unanswered, connections) = (Arc::default(), Arc::default(), Arc::default());
        let way = Self { port, freezes, unanswered, connections };
        let (freezes, connections) = (way.freezes.clone(), way.connections.clone());
        let unanswered = way.unanswered.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", target)).unwrap());
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                connections.lock().unwrap().push(client.try_clone().unwrap());
                let unanswered = freezes.load(Ordering::SeqCst).then(|| unanswered.clone());
                pass(client, server, unanswered);
            }
        });
        way
    }

    /// Ends all connections, and freezes those that come next.
    fn freeze(&self) {
        self.freezes.store(true, Ordering::SeqCst);
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Lets new connections pass. Those that are frozen stay so, and open.
    fn pass(&self) {
        self.freezes.store(false, Ordering::SeqCst);
    }
}

/// Passes everything, but no answer after the first request of a connection that freezes.
fn pass(client: TcpStream, server: TcpStream, unanswered: Option<Arc<AtomicUsize>>) {
    let is_frozen = Arc::new(AtomicBool::new(false));
    let (mut up, mut down) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let (mut client, mut server, frozen) = (client, server, is_frozen.clone());
    std::thread::spawn(move || {
        let (mut buffer, mut sent) = ([0; 4096], Vec::new());
        while let Ok(n @ 1..) = client.read(&mut buffer) {
            sent.extend_from_slice(&buffer[..n]);
            if let Some(unanswered) = &unanswered {
                let requests = requests(&sent);
                frozen.store(requests > 0, Ordering::SeqCst);
                unanswered.fetch_max(requests, Ordering::SeqCst);
            }
            if up.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = up.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = server.read(&mut buffer) {
            if !is_frozen.load(Ordering::SeqCst) && down.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = down.shutdown(Shutdown::Both);
    });
}

/// How many requests a client has sent, besides its greeting.
fn requests(sent: &[u8]) -> usize {
    let (mut rest, mut requests) = (sent.get(PREFACE..).unwrap_or_default(), 0);
    while let Some((frame, behind)) = rest.split_at_checked(FRAME) {
        requests += usize::from(frame[3] == HEADERS);
        let length = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
        rest = behind.get(length..).unwrap_or_default();
    }
    requests
}

/// A client that notes its promotions.
#[derive(Debug)]
struct Notes(mpsc::UnboundedSender<u64>);

impl Wake for Notes {
    fn promoted(&self, promotion: &Promotion) {
        let _ = self.0.send(promotion.seat);
    }
    fn look(&self, _: &Key) {}
    fn look_all(&self) {}
    fn is_gone(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_watch_is_opened_again_on_another_connection() {
    let server = Server::start();
    let way = Freezing::to(server.port());
    let (promotions, mut promoted) = mpsc::unbounded_channel();
    let store = Etcd::from_url(&format!("etcd://127.0.0.1:{}?timeout=500ms", way.port)).unwrap();
    store.open(Inbox(7), Arc::new(Notes(promotions))).await.unwrap();
    way.freeze();
    // A call connects again. Until it gives that connection up, the listener asks there for its watch.
    let key = Key::new(KEY).unwrap();
    let both_ask = async {
        while way.unanswered.load(Ordering::SeqCst) < 2 {
            let _ = store.inspect(&key).await;
        }
    };
    timeout(SERVED, both_ask).await.expect("the listener asks for its watch");
    // The last call on it ends.
    let _ = store.inspect(&key).await;
    way.pass();

    let holder = client_with(&server.url(), LONG).await;
    let guard = acquire(&holder).await;
    let claim = Claim::new(key, WHOLE, Units::Exactly(WHOLE)).unwrap();
    let claim = Claim { inbox: Inbox(7), lease: Some(LONG), ..claim };
    let place = timeout(SERVED, async {
        loop {
            match store.claim(&claim).await {
                Ok(Answer::Waiting(place)) => return place,
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    });
    let place = place.await.expect("the way is open again");
    guard.release().await.unwrap();
    let seat = timeout(Duration::from_secs(20), promoted.recv()).await.expect("the promotion is pushed");
    assert_eq!(seat, Some(place.seat));
    store.release(&claim, None).await.unwrap();
}
