//! The scripts: the rule as the server runs it, one file per verb under `lua/`.
//!
//! What several verbs need is a file of its own; a line `--@ name` stands for it. Where it stands matters: a server
//! runs a script from its first line every time, so the common case is answered before the functions of the rare
//! ones are defined.

use std::sync::OnceLock;

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    /// The verb, for messages.
    pub(crate) name: &'static str,
    file: &'static str,
    ready: OnceLock<Ready>,
}

#[derive(Debug)]
struct Ready {
    source: String,
    sha1: String,
}

/// One call of a script, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    /// The hash slot of its keys.
    pub(crate) slot: u16,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) ack: Ack,
    /// Whether it has a short way, so that it may be made together with others.
    pub(crate) joins: bool,
    /// The calls that this one is made of.
    pub(crate) members: Vec<Self>,
}

impl Call {
    /// Whether it is a release.
    pub(crate) fn gives_back(&self) -> bool {
        std::ptr::eq(self.script, &raw const RELEASE)
    }
}

/// Whether a call counts only when replicas have it, on stores that ask for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// Clients rely on it: a grant, a renewal, a change, a withdrawal.
    Needed,
    /// A failover may undo it without harm: the release of a claim that its lease ends, a look.
    Free,
}

pub(crate) static CLAIM: Script = Script::new("claim", include_str!("lua/claim.lua"));
pub(crate) static RENEW: Script = Script::new("renew", include_str!("lua/renew.lua"));
pub(crate) static AMEND: Script = Script::new("amend", include_str!("lua/amend.lua"));
pub(crate) static RELEASE: Script = Script::new("release", include_str!("lua/release.lua"));
pub(crate) static MANY: Script = Script::new("many", include_str!("lua/many.lua"));
pub(crate) static EVICT: Script = Script::new("evict", include_str!("lua/evict.lua"));
pub(crate) static INSPECT: Script = Script::new("inspect", include_str!("lua/inspect.lua"));
pub(crate) static BEAT: Script = Script::new("beat", include_str!("lua/beat.lua"));

const CLOCK: &str = include_str!("lua/clock.lua");

/// The files that others include.
const PARTS: &[(&str, &str)] = &[
    ("clock", CLOCK),
    ("format", include_str!("lua/format.lua")),
    ("numbers", include_str!("lua/numbers.lua")),
    ("read", include_str!("lua/read.lua")),
    ("sure", include_str!("lua/sure.lua")),
    ("draw", include_str!("lua/draw.lua")),
    ("take", include_str!("lua/take.lua")),
    ("behind", include_str!("lua/behind.lua")),
    ("give", include_str!("lua/give.lua")),
    ("pass", include_str!("lua/pass.lua")),
    ("inherit", include_str!("lua/inherit.lua")),
    ("row", include_str!("lua/row.lua")),
    ("fence", include_str!("lua/fence.lua")),
    ("ledger", include_str!("lua/ledger.lua")),
    ("settle", include_str!("lua/settle.lua")),
    ("rule", include_str!("lua/rule.lua")),
];

impl Script {
    pub(crate) const fn new(name: &'static str, file: &'static str) -> Self {
        Self { name, file, ready: OnceLock::new() }
    }

    /// The whole text.
    pub(crate) fn source(&self) -> &str {
        &self.ready().source
    }

    /// What a server calls it.
    pub(crate) fn sha1(&self) -> &str {
        &self.ready().sha1
    }

    fn ready(&self) -> &Ready {
        self.ready.get_or_init(|| {
            let source = assemble(self.file);
            let sha1 = sha1(&source);
            Ready { source, sha1 }
        })
    }
}

/// SHA-1 as servers write it, by the client's own means: it hashes scripts.
pub(crate) fn sha1(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

/// The file with its parts put in.
fn assemble(file: &str) -> String {
    let mut source = String::new();
    for line in file.lines() {
        match line.strip_prefix("--@ ") {
            None => source.push_str(line),
            Some(name) => {
                let part = PARTS.iter().find(|(part, _)| *part == name);
                source.push_str(&assemble(part.expect("the scripts name parts that exist").1));
            }
        }
        source.push('\n');
    }
    source
}

#[cfg(test)]
mod tests;
