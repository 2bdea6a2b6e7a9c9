//! Signals that end the wait for a lock, on every kind of store: the place in the queue is given up.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::stores::Stores;
use super::util::{Place, code, finish};

/// How long a runner may take to leave the queue and to end. A place that it did not give up would end after 10 s.
const LIMIT: Duration = Duration::from_secs(8);

fn assert_signalled_waiters_leave_the_queue_of(stores: &Stores) {
    // Runners that do not queue have no place to give up.
    for url in &stores.urls {
        let place = Place::on(url);
        let _holder = place.hold("run k");
        for (signal, status) in
            [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)]
        {
            let mut waiter = place.leasehold("run k -- touch ran").stdout(Stdio::null()).spawn().unwrap();
            if url.contains("mode=") {
                std::thread::sleep(Duration::from_millis(500));
            } else {
                place.wait_for_waiters("k", 1);
            }
            let start = Instant::now();
            kill_process(Pid::from_child(&waiter), signal).unwrap();
            assert_eq!(code(&finish(&mut waiter).expect("must end")), status, "{url}");
            let took = start.elapsed();
            eprintln!("{url}: {signal:?} {} ms", took.as_millis());
            assert!(took < LIMIT, "{url}: {took:?}");
            assert_eq!(place.show("k")["waiters"].as_array().unwrap().len(), 0, "{url}");
        }
        assert!(!place.path("ran").exists());
    }
}

#[test]
fn signalled_waiter_leaves_the_queue_on_sqlite() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::sqlite());
}

#[test]
fn signalled_waiter_leaves_the_queue_on_file() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::file());
}

#[test]
fn signalled_waiter_leaves_the_queue_on_redis() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::redis());
}

#[test]
fn signalled_waiter_leaves_the_queue_on_postgres() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::postgres());
}

#[test]
fn signalled_waiter_leaves_the_queue_on_mariadb() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::mariadb());
}

#[test]
fn signalled_waiter_leaves_the_queue_on_zookeeper() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::zookeeper());
}

#[test]
fn signalled_waiter_leaves_the_queue_on_etcd() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::etcd());
}

#[test]
fn signalled_waiter_leaves_the_queue_on_consul() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::consul());
}

#[test]
fn signalled_waiter_leaves_the_queue_on_memcached() {
    assert_signalled_waiters_leave_the_queue_of(&Stores::memcached());
}
