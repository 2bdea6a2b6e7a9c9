//! Keys and values that are not ours.

use leasehold_conformance::fuzz::fuzz;
use leasehold_core::Key;

use crate::format::{claimed, limits};
use crate::names::Names;
use crate::wire::message::KeyValue;

#[test]
fn no_value_makes_us_panic() {
    let key = Key::new("orders/42").expect("it is a name");
    let seeds: [&[u8]; 2] = [
        br#"{"leasehold":1,"nth":1,"round":2,"limit":1,"claims":[{"id":"a","seat":0,"token":0,"units":1,"held":1}]}"#,
        br#"{"leasehold":1,"limit":3,"effective":2,"claims":[]}"#,
    ];
    fuzz(&seeds, |bytes| {
        for revision in [0, 7, i64::MAX, -1] {
            let kv = KeyValue {
                value: bytes.to_vec(),
                created: revision,
                modified: revision,
                ..KeyValue::default()
            };
            let _ = limits(&key, &kv);
            let _ = claimed(&key, kv);
        }
    });
}

#[test]
fn no_key_makes_us_panic() {
    let names = Names::new("leasehold");
    let seeds: [&[u8]; 2] =
        [b"leasehold/lock/orders%2F42/held/000102030405060708090a0b0c0d0e0f", b"leasehold/lock/%ff/limit"];
    fuzz(&seeds, |bytes| {
        let _ = (names.parse(bytes), names.claim(bytes));
    });
}
