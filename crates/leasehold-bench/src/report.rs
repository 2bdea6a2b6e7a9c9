//! The results: a table for people, JSON for machines.

use std::fmt::Write;

use serde::Serialize;

use crate::contest::{Effort, Figures, Result};

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the crates.
    pub leasehold: &'static str,
    /// The version of SQLite.
    pub sqlite: &'static str,
    /// The processor.
    pub processor: String,
    /// How many of it this process may use.
    pub cores: usize,
    /// The kernel.
    pub kernel: String,
    /// How much was measured.
    pub effort: Effort,
    /// What was found.
    pub results: Vec<Result>,
}

impl Report {
    /// An empty report about this machine.
    pub fn new(effort: Effort) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            leasehold: env!("CARGO_PKG_VERSION"),
            sqlite: rusqlite::version(),
            processor: model.map_or("unknown", |(_, name)| name).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            effort,
            results: Vec::new(),
        }
    }

    /// For machines.
    ///
    /// # Errors
    /// When a figure is not a number: nothing was measured.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = self.heading();
        for result in &self.results {
            text.push_str(&lines(result));
        }
        text
    }

    /// What stands above the results.
    pub fn heading(&self) -> String {
        let mut text = format!(
            "leasehold {}, SQLite {}, {} x {}, kernel {}; {} rounds of {:?} in turns\n\n",
            self.leasehold,
            self.sqlite,
            self.cores,
            self.processor,
            self.kernel,
            self.effort.rounds,
            self.effort.round
        );
        let head = ["", "", "pairs/s", "best", "p50", "p99", "longest", "ours / peer"];
        row(&mut text, head.map(str::to_owned));
        text
    }
}

/// One result, a line for each of the two.
pub fn lines(result: &Result) -> String {
    let mut text = String::new();
    let name = format!("{}, {}", result.store, result.load);
    let mut ratio = format!("{:.2} x (best {:.2})", result.ratio, result.ratio_of_best);
    if let Some(goal) = result.goal {
        let _ = write!(ratio, ", goal {goal:.1}");
    }
    line(&mut text, name, &result.ours, ratio);
    line(&mut text, String::new(), &result.peer, String::new());
    text
}

fn line(text: &mut String, name: String, figures: &Figures, ratio: String) {
    let rate = |pairs: f64| format!("{pairs:.0}");
    let (median, best) = (rate(figures.median), rate(figures.best));
    let [p50, p99, longest] = [figures.p50_ns, figures.p99_ns, figures.longest_ns].map(time);
    row(text, [name, figures.subject.to_owned(), median, best, p50, p99, longest, ratio]);
}

fn row(text: &mut String, [name, subject, median, best, p50, p99, longest, ratio]: [String; 8]) {
    let line = format!("{name:<28}{subject:<32}{median:>9}{best:>9}{p50:>9}{p99:>9}{longest:>9}  {ratio}");
    let _ = writeln!(text, "{}", line.trim_end());
}

fn time(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{} us", nanos / 1_000),
        _ => format!("{} ms", nanos / 1_000_000),
    }
}
