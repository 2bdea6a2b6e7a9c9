//! URLs of every store, and what hides their passwords.

use leasehold_conformance::fuzz::fuzz;

#[test]
fn no_url_of_any_store_makes_us_panic() {
    // Those that opening alone would make a file or a memory of are left out.
    let seeds: [&[u8]; 9] = [
        b"redis://app:hunter2@one:7000/3?timeout=2s&min_replicas=1",
        b"redis+sentinel://h1:1,h2:2/service/3",
        b"rediss+cluster://h1,h2?connect_timeout=1s",
        b"redlock://h1,h2,h3?max_lease=30s",
        b"postgres://app:a@b@[::1]:5432/db?schema=locks&sslmode=disable",
        b"mysql://app:p@h/db?prefix=x_",
        b"zookeeper://app:p@h1:2181,h2/chroot?timeout=3s",
        b"etcd://u:p@h1,h2?prefix=locks",
        b"quorum:max_lease=9s,redis://a,consul://b/prefix?dc=x,etcd://c",
    ];
    fuzz(&seeds, |bytes| {
        let url = String::from_utf8_lossy(bytes);
        let _ = leasehold::redact(&url);
        let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !scheme.is_empty()
            && !["sqlite", "file", "memory"].iter().any(|local| url.to_ascii_lowercase().contains(local))
        {
            let _ = leasehold::open(&url);
        }
    });
}
