//! Replies, messages and names that are not ours.

use leasehold_conformance::fuzz::fuzz;
use leasehold_core::Key;
use redis::Value;

use crate::secret::Secret;
use crate::{names, reply};

#[test]
fn no_reply_makes_us_panic() {
    let key = Key::new("orders/42").expect("it is a name");
    let granted = [b"granted".as_slice(), &[0; 40]].concat();
    let waiting = [b"waiting ".as_slice(), &[0xff; 40]].concat();
    fuzz(&[&granted, &waiting, b"busy", b"left\0\0\0\0\0\0\0\x01", b"conflict 3"], |bytes| {
        let said = || Value::BulkString(bytes.to_vec());
        let _ = (reply::answer(said(), &key), reply::released(said(), &key), reply::evicted(said(), &key));
        let _ = (reply::book(said(), &key), reply::snapshot(Value::Array(vec![said(), said()]), &key));
    });
}

#[test]
fn no_message_makes_us_panic() {
    let secret = Secret::random().expect("there is randomness");
    fuzz(&[b"5eb63b 0123456789abcdef 7 9 1 leasehold{:orders/42}", b"- 0 0 0 0 leasehold:x"], |bytes| {
        let _ = (reply::heard(bytes), names::locked(bytes), secret.proves(bytes));
    });
}
