//! What people and other programs give us as text.

use leasehold_conformance::fuzz::fuzz;
use leasehold_core::Ticket;
use leasehold_core::url::{About, Url};

#[test]
fn no_url_makes_us_panic() {
    const ABOUT: About = About { store: "test", forms: "write it like test://host" };
    let seeds: [&[u8]; 3] = [
        b"redis://app:hunter2@one,two:7000/3?timeout=2s&cacert=/a%20b&min_replicas=1",
        b"etcds://[::1]:2379,[fe80::1]/a/b%2fc",
        b"test://",
    ];
    fuzz(&seeds, |bytes| {
        let Ok(mut url) = Url::parse(ABOUT, &String::from_utf8_lossy(bytes)) else { return };
        let _ = (url.addresses(1), url.segments(), url.needs_password_with_user());
        let _ =
            (url.query.duration("timeout"), url.query.number::<u32>("min_replicas"), url.query.tls_files());
        let _ = url.query.done("known are some");
    });
}

#[test]
fn no_ticket_makes_us_panic() {
    let seeds: [&[u8]; 2] = [
        b"leasehold-ticket-1.1.1.30000.000102030405060708090a0b0c0d0e0f.6f7264657273",
        b"leasehold-ticket-1.18446744073709551615.0.0..ff",
    ];
    fuzz(&seeds, |bytes| {
        // What is taken for one is one: it comes back the same.
        if let Ok(ticket) = String::from_utf8_lossy(bytes).parse::<Ticket>() {
            assert_eq!(
                ticket.to_string().parse::<Ticket>().map(|again| again.to_string()).ok(),
                Some(ticket.to_string())
            );
        }
    });
}
