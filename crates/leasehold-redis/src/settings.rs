//! The settings of a server that the store's promises rest on, read when it connects.
//!
//! Of a server that takes over later, only the setting that voids exclusion is read.
//!
//! `INFO` tells most of them. `CONFIG GET` tells the others, and many services forbid it: then the check says that the
//! setting is unknown.

use std::collections::HashMap;

use leasehold_core::{Check, Severity};
use redis::{FromRedisValue, Value};
use tokio::time::Instant;

use crate::link::Wire;

const SECTIONS: [&str; 3] = ["memory", "persistence", "replication"];
const SETTINGS: [&str; 2] = ["appendfsync", "save"];

/// What a server says about itself.
#[derive(Debug, Default)]
struct Server {
    /// The lines of `INFO`.
    info: HashMap<String, String>,
    /// What `CONFIG GET` answers, as far as it may be asked.
    config: HashMap<String, String>,
}

/// Looks at one server, in one round trip. A client that waits for `min_replicas` itself needs less of it. Nothing when the
/// server does not answer.
pub(crate) async fn check(wire: &Wire, min_replicas: u32, until: Instant) -> Option<Vec<Check>> {
    let mut questions = redis::pipe();
    for section in SECTIONS {
        questions.cmd("INFO").arg(section);
    }
    for setting in SETTINGS {
        questions.cmd("CONFIG").arg("GET").arg(setting);
    }
    let answers = wire.send_all(&questions, until).await.ok()?;
    let (info, config) = answers.split_at(SECTIONS.len().min(answers.len()));
    Some(Server { info: lines(info), config: pairs(config) }.checks(min_replicas))
}

/// The setting that voids exclusion, if `INFO memory` shows it: the server may evict locks.
pub(crate) fn refused(memory: &Value) -> Option<Check> {
    let server = Server { info: lines(std::slice::from_ref(memory)), config: HashMap::new() };
    Some(server.eviction()).filter(|check| check.severity == Severity::Refused)
}

/// For each setting, the worst that any server of a cluster has, of those that answered.
pub(crate) fn worst(servers: Vec<Option<Vec<Check>>>) -> Vec<Check> {
    let mut all: Vec<Check> = Vec::new();
    for check in servers.into_iter().flatten().flatten() {
        match all.iter_mut().find(|known| known.name == check.name) {
            Some(known) if known.severity < check.severity => *known = check,
            Some(_) => {}
            None => all.push(check),
        }
    }
    all
}

fn lines(info: &[Value]) -> HashMap<String, String> {
    let sections = info.iter().filter_map(|said| String::from_redis_value_ref(said).ok());
    let lines = |section: String| {
        let pairs = section.lines().filter_map(|line| line.split_once(':'));
        pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect::<Vec<_>>()
    };
    sections.flat_map(lines).collect()
}

fn pairs(config: &[Value]) -> HashMap<String, String> {
    let answers = config.iter().filter_map(|said| HashMap::<String, String>::from_redis_value_ref(said).ok());
    answers.flatten().collect()
}

impl Server {
    fn checks(&self, min_replicas: u32) -> Vec<Check> {
        vec![self.eviction(), self.log(), self.sync(), self.snapshots(), self.replicas(min_replicas)]
    }

    fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    fn eviction(&self) -> Check {
        const NAME: &str = "maxmemory-policy";
        let (Some(policy), Some(limit)) = (self.info("maxmemory_policy"), self.info("maxmemory")) else {
            return unknown(NAME, "INFO", "a server that evicts keys grants locks twice");
        };
        if policy == "noeviction" || limit == "0" {
            return Check::ok(NAME, policy);
        }
        Check::refused(NAME, format!("{policy} with maxmemory {limit}"))
            .effect("the server may evict locks and tokens when its memory is full, and grant a lock twice")
            .remedy("set maxmemory-policy noeviction, or use a server of its own for locks")
    }

    fn has_log(&self) -> Option<bool> {
        self.info("aof_enabled").map(|value| value == "1")
    }

    fn log(&self) -> Check {
        const NAME: &str = "appendonly";
        match self.has_log() {
            None => unknown(NAME, "INFO", "a restart may forget locks"),
            Some(true) => Check::ok(NAME, "yes"),
            Some(false) => Check::warning(NAME, "no")
                .effect("a restart of the server can forget every lock, and grant it twice")
                .remedy("set appendonly yes and appendfsync always, or check tokens at the resource"),
        }
    }

    fn sync(&self) -> Check {
        const NAME: &str = "appendfsync";
        let Some(found) = self.config.get(NAME) else {
            return unknown(NAME, "CONFIG GET", "a power cut may forget the last grants");
        };
        let lost = match (self.has_log(), found.as_str()) {
            (_, "always") | (Some(false), _) => return Check::ok(NAME, found),
            (_, "everysec") => "second",
            _ => "half minute",
        };
        Check::warning(NAME, found)
            .effect(format!("a power cut can forget the grants of the last {lost}"))
            .remedy("set appendfsync always, or check tokens at the resource")
    }

    fn snapshots(&self) -> Check {
        const NAME: &str = "save";
        let Some(found) = self.config.get(NAME) else {
            return unknown(NAME, "CONFIG GET", "a restart may bring back the locks of an old snapshot");
        };
        if found.is_empty() || self.has_log() == Some(true) {
            return Check::ok(NAME, found);
        }
        Check::warning(NAME, found)
            .effect(
                "a restart goes back to the last snapshot: it forgets later grants, and locks that were released \
                 since are held until their lease expires",
            )
            .remedy("set appendonly yes, or save \"\"")
    }

    fn replicas(&self, min_replicas: u32) -> Check {
        const NAME: &str = "min-replicas-to-write";
        const EFFECT: &str =
            "a primary that is cut off from its replicas goes on granting while another takes its place";
        let Some(replicas) = self.info("connected_slaves") else {
            return unknown(NAME, "INFO", EFFECT);
        };
        // INFO has this line only where the setting is in force.
        if self.info("min_slaves_good_slaves").is_some() {
            return Check::ok(NAME, "set");
        }
        if replicas == "0" || min_replicas > 0 {
            return Check::ok(NAME, "0");
        }
        Check::warning(NAME, "0")
            .effect(EFFECT)
            .remedy("set min-replicas-to-write 1, or add min_replicas=1 to the URL")
    }
}

/// A setting that this user may not read: `effect` is what could be.
fn unknown(name: &str, command: &str, effect: &str) -> Check {
    Check::ok(name, "unknown")
        .effect(format!("this user may not use {command}, so the store could not read it; {effect}"))
        .remedy("ask the administrator")
}
