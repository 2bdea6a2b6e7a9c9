//! One hot lock among processes: eight of them with eight contenders each, and a counter that only the lock protects.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_bench::contest::Effort;
use leasehold_bench::subject::{Outcome, Subject};
use leasehold_core::Options;
use serde::Serialize;

use crate::ours;
use crate::peers::{AsyncRedisLock, Rslock};

/// The argument that makes this program one of the contenders.
pub(crate) const CHILD: &str = "--contender";
const PROCESSES: usize = 8;
const TASKS: usize = 8;

/// What the processes did together.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    subject: &'static str,
    hand_overs_per_second: f64,
    longest_wait_ms: u128,
    counter_is_exact: bool,
}

/// All rows.
#[derive(Debug, Serialize)]
pub(crate) struct Processes(Vec<Row>);

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.0 {
            let count = if row.counter_is_exact { "exact" } else { "WRONG" };
            writeln!(
                f,
                "{PROCESSES} processes x {TASKS} on one key: {:<22}{:>8.0} hand-overs/s, longest wait {:>6} ms, counter {count}",
                row.subject, row.hand_overs_per_second, row.longest_wait_ms
            )?;
        }
        write!(
            f,
            "  goal: barging at least as many as either crate, fair with a tenth of the better one's longest wait"
        )
    }
}

pub(crate) fn measure(url: &str, effort: Effort) -> Outcome<Processes> {
    let length = effort.round * u32::try_from(effort.rounds)?;
    let mut rows = Vec::new();
    for subject in ["leasehold", "leasehold, barging", "rslock 0.10", "async-redis-lock 0.4"] {
        rows.push(contend(url, subject, length)?);
    }
    Ok(Processes(rows))
}

fn contend(url: &str, subject: &'static str, length: Duration) -> Outcome<Row> {
    let counter = tempfile::NamedTempFile::new()?;
    counter.as_file().write_all_at(&0_u64.to_le_bytes(), 0)?;
    let began = Instant::now();
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([CHILD, url, subject]).arg(counter.path()).arg(length.as_millis().to_string());
        children.push(command.stdout(Stdio::piped()).spawn()?);
    }
    let (mut pairs, mut longest) = (0, 0);
    for child in children {
        let said = child.wait_with_output()?;
        let said = String::from_utf8(said.stdout)?;
        let (count, wait) = said.trim().split_once(' ').ok_or("a contender failed")?;
        pairs += count.parse::<u64>()?;
        longest = longest.max(wait.parse::<u128>()?);
    }
    let mut bytes = [0; 8];
    counter.as_file().read_exact_at(&mut bytes, 0)?;
    Ok(Row {
        subject,
        hand_overs_per_second: pairs as f64 / began.elapsed().as_secs_f64(),
        longest_wait_ms: longest,
        counter_is_exact: u64::from_le_bytes(bytes) == pairs,
    })
}

/// One process: contends, and prints how often it held the lock and its longest wait in milliseconds.
pub(crate) async fn child(arguments: &[String]) -> Outcome<()> {
    let [url, subject, counter, millis] = arguments else { return Err("four arguments".into()) };
    let length = Duration::from_millis(millis.parse()?);
    let (pairs, longest) = match subject.as_str() {
        "leasehold" => run(ours(url, Options::new()).await?, counter, length).await?,
        "leasehold, barging" => run(ours(url, Options::new().barging()).await?, counter, length).await?,
        "rslock 0.10" => run(Rslock::connect(url)?, counter, length).await?,
        _ => run(AsyncRedisLock::connect(url).await?, counter, length).await?,
    };
    writeln!(std::io::stdout(), "{pairs} {}", longest.as_millis())?;
    Ok(())
}

async fn run(subject: impl Subject, counter: &str, length: Duration) -> Outcome<(u64, Duration)> {
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(counter)?);
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let (subject, file) = (subject.clone(), file.clone());
        tasks.spawn(async move {
            let (mut pairs, mut longest) = (0, Duration::ZERO);
            while began.elapsed() < length {
                let asked = Instant::now();
                let waited = std::sync::OnceLock::new();
                subject
                    .pair("bench/processes", async {
                        let _ = waited.set(asked.elapsed());
                        count(&file).expect("the counter can be written");
                    })
                    .await?;
                longest = longest.max(waited.get().copied().unwrap_or_default());
                pairs += 1;
            }
            Outcome::Ok((pairs, longest))
        });
    }
    let (mut pairs, mut longest) = (0, Duration::ZERO);
    while let Some(done) = tasks.join_next().await {
        let (count, wait) = done??;
        pairs += count;
        longest = longest.max(wait);
    }
    Ok((pairs, longest))
}

/// Not atomic on purpose.
fn count(file: &std::fs::File) -> std::io::Result<()> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0)?;
    let next = u64::from_le_bytes(bytes) + 1;
    file.write_all_at(&next.to_le_bytes(), 0)
}
