//! Records that somebody else wrote, or half of one.

use leasehold_conformance::fuzz::fuzz;

use super::format::Record;
use crate::Key;
use crate::book::{Fence, OpenBook};

#[test]
fn no_record_makes_us_panic() {
    let key = Key::new("orders/42").expect("it is a name");
    let seeds: [&[u8]; 4] = [
        br#"{"leasehold":1,"key":"orders/42","last":17,"limit":1,"claims":[{"id":"a","seat":3,"token":4,"units":1,"held":1,"until":5000}]}"#,
        br#"{"leasehold":1,"key":"orders/42","last":18446744073709551615,"limit":3,"effective":2,"quiet_until":9,"agreed":5,"claims":[]}"#,
        br#"{"leasehold":1,"key":"orders/42","last":9,"limit":2,"claims":[{"id":"a","seat":3,"token":4,"held":18446744073709551615},{"id":"b","seat":5,"token":6,"held":2}]}"#,
        br#"{"leasehold":2}"#,
    ];
    fuzz(&seeds, |bytes| {
        for origin in [0, 1 << 40, u64::MAX] {
            let Ok(record) = Record::read(&key, bytes, origin) else { continue };
            let (mut book, mut fence) = (record.state.book(1_000), Fence::default());
            let _ = crate::rule::snapshot(&mut OpenBook::new(&key, &mut book, &mut fence, 0), 2_000);
            let _ = record.write();
        }
    });
}

#[test]
fn no_message_makes_us_panic() {
    let seeds: [&[u8]; 2] =
        [br#"{"lock":"orders/42","granted":[{"seat":1,"token":2,"units":3}]}"#, br#"{"lock":""}"#];
    fuzz(&seeds, |bytes| {
        if let Some(message) = super::Message::read(bytes) {
            let _ = (message.number(), message.key(), message.promotions(crate::Inbox(1)));
        }
    });
}
