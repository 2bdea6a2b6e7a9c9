//! Many on one key: ours beside Curator's `InterProcessMutex`, in turns.
//!
//! Curator runs in a process of its own, because it is Java; it does its rounds when it is told to. Without a Java
//! compiler or Curator's Debian packages (`libcurator-recipes-java`) only ours is measured, and the row says so.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold_bench::contest::Effort;
use leasehold_bench::round::{Load, round};
use leasehold_bench::subject::Outcome;

use crate::ours;

const TASKS: usize = 64;
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/zookeeper/Curator.java");

/// Where the classes are; `LEASEHOLD_CURATOR` names another directory than Debian's.
fn classes() -> String {
    let own = std::env::var("LEASEHOLD_CURATOR").unwrap_or_else(|_| "/usr/share/java".to_owned());
    let curator = ["curator-client", "curator-framework", "curator-recipes", "guava"];
    let curator = curator.iter().map(|name| format!("{own}/{name}.jar"));
    let others = ["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop"];
    let others = others.iter().map(|name| format!("/usr/share/java/{name}.jar"));
    curator.chain(others).collect::<Vec<_>>().join(":")
}

struct Curator {
    process: Child,
    asks: ChildStdin,
    hears: BufReader<ChildStdout>,
}

impl Curator {
    fn start(port: u16) -> Option<Self> {
        let mut java = Command::new("java");
        java.args(["-cp", &classes(), PROGRAM, &port.to_string(), &TASKS.to_string()]);
        let mut process =
            java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let (asks, hears) = (process.stdin.take()?, BufReader::new(process.stdout.take()?));
        let mut curator = Self { process, asks, hears };
        // A round to see whether it runs, and to compile what is hot.
        curator.round(Duration::from_secs(2)).map(|_| curator)
    }

    /// Pairs per second; nothing when it does not run.
    fn round(&mut self, length: Duration) -> Option<f64> {
        writeln!(self.asks, "{}", length.as_millis()).ok()?;
        let mut line = String::new();
        self.hears.read_line(&mut line).ok()?;
        line.trim().parse().ok()
    }
}

impl Drop for Curator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Hot {
    ours: Vec<f64>,
    curator: Vec<f64>,
}

impl fmt::Display for Hot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = median(&self.ours);
        if self.curator.is_empty() {
            return write!(
                f,
                "{TASKS} on one key: ours {ours:.0}/s; no Java compiler or no Curator to compare with"
            );
        }
        let curator = median(&self.curator);
        let ratio = ours / curator;
        write!(
            f,
            "{TASKS} on one key: ours {ours:.0}/s, Curator {curator:.0}/s; {ratio:.2} x, goal at least 1.3"
        )
    }
}

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) async fn measure(port: u16, effort: Effort) -> Outcome<Hot> {
    let subject = ours(port).await?;
    let mut curator = tokio::task::spawn_blocking(move || Curator::start(port)).await?;
    let mut hot = Hot::default();
    round(&subject, Load::Together(TASKS), effort.round).await?;
    for _ in 0..effort.rounds {
        hot.ours.push(round(&subject, Load::Together(TASKS), effort.round).await?.per_second());
        if let Some(curator) = &mut curator {
            let length = effort.round;
            let rate = tokio::task::block_in_place(|| curator.round(length));
            hot.curator.push(rate.ok_or("Curator has ended")?);
        }
    }
    Ok(hot)
}
