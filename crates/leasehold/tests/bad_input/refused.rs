//! Ports that nothing listens on: an error immediately, which names the addresses and the cause once.

use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind};
use leasehold_servers::free_port;
use libtest_mimic::{Failed, Trial};

use crate::schemes::{SCHEMES, Scheme};

/// The longest that a refusal may take.
const SOON: Duration = Duration::from_secs(1);

/// A busy machine is slow once, a timer is slow every time.
const ATTEMPTS: usize = 3;

/// Every client, with one port that refuses, and with three.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for scheme in SCHEMES {
        let mut add = |name: &str, hosts: usize| {
            let name = format!("{}::refused::{name}", scheme.name);
            trials.push(Trial::test(name, move || is_reported(scheme, hosts)));
        };
        add("one_host", 1);
        if scheme.has_hosts {
            add("three_hosts", 3);
        }
    }
    trials
}

fn is_reported(scheme: &Scheme, hosts: usize) -> Result<(), Failed> {
    let hosts: Vec<String> = (0..hosts).map(|_| format!("127.0.0.1:{}", free_port())).collect();
    let url = scheme.url(&hosts.join(","), "");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut fastest = Duration::MAX;
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        let connected = runtime.block_on(async { Client::new(leasehold::open(&url)?).await });
        fastest = fastest.min(start.elapsed());
        let error = connected.map(drop).err().ok_or("it connected")?;
        let said = error.to_string();
        if error.kind() != ErrorKind::Unavailable {
            return Err(format!("{}: {said}", error.kind()).into());
        }
        if let Some(host) = hosts.iter().find(|host| !said.contains(*host)) {
            return Err(format!("{host} is not named: {said}").into());
        }
        let causes = said.to_lowercase().matches("connection refused").count();
        if causes != 1 {
            return Err(format!("the cause is named {causes} times: {said}").into());
        }
        if ["may have", "nput/output error"].iter().any(|part| said.contains(part)) {
            return Err(format!("the error is more than the refusal: {said}").into());
        }
        if fastest < SOON {
            return Ok(());
        }
    }
    Err(format!("it took {fastest:?}").into())
}
