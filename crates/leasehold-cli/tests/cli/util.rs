//! A fresh store and the binary, and waiting for events instead of sleeping.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long an event may take that should happen at once. Only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A script that does nothing for as long as it may.
pub(crate) const FOR_EVER: &str = "while :; do sleep 60; done";

/// A store of one's own, and a directory for files.
pub(crate) struct Place {
    dir: TempDir,
    url: Option<String>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), url: None }
    }

    /// On another store than a file.
    pub(crate) fn on(url: &str) -> Self {
        Self { url: Some(url.to_owned()), ..Self::new() }
    }

    /// In a SQLite file whose commits all wait for the disk.
    pub(crate) fn with_synced_file() -> Self {
        let mut place = Self::new();
        place.url = Some(format!("{}?sync=full", place.url()));
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        let file = || format!("sqlite://{}", self.path("locks.db").display());
        self.url.clone().unwrap_or_else(file)
    }

    /// `leasehold` with these words, split at spaces.
    pub(crate) fn leasehold(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(words.split_whitespace()).env("LEASEHOLD_STORE", self.url()).env_remove("RUST_LOG");
        command.env("XDG_STATE_HOME", self.path("state")).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// The same, with a shell script as the program.
    pub(crate) fn run_script(&self, words: &str, script: &str) -> Command {
        let mut command = self.leasehold(words);
        command.args(["--", "sh", "-c", script]);
        command
    }

    /// Runs `leasehold` with these words and expects this exit code.
    pub(crate) fn expect(&self, words: &str, status: i32) {
        let output = self.leasehold(words).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{words}: {output:?}");
    }

    /// A program that holds the key until it is told otherwise, started and holding.
    pub(crate) fn hold(&self, words: &str) -> Holder {
        self.hold_with(words, FOR_EVER)
    }

    /// A script that holds the key, started and holding. Its process id is in the file `holder`.
    pub(crate) fn hold_with(&self, words: &str, script: &str) -> Holder {
        self.hold_with_words(&words.split_whitespace().collect::<Vec<_>>(), script)
    }

    /// The same, for words with spaces in them.
    pub(crate) fn hold_with_words(&self, words: &[&str], script: &str) -> Holder {
        let _ = fs::remove_file(self.path("holder"));
        let script = format!("echo $$ >holder.new; mv holder.new holder; {script}");
        let mut command = self.leasehold("");
        command.args(words).args(["--", "sh", "-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = Holder { runner: command.spawn().unwrap(), program: 0 };
        holder.program = self.number_in("holder");
        holder
    }

    /// Takes the lock next, and says whether the process was still running then.
    pub(crate) fn next_finds_running(&self, key: &str, pid: i32) -> bool {
        // A zombie is not: nobody may have been there to reap it.
        let look = format!("grep -q '^State:.[RSDT]' /proc/{pid}/status && echo yes; true");
        let output = self.run_script(&format!("run {key}"), &look).output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        text(&output.stdout) == "yes\n"
    }

    /// Waits for a file with a number in it.
    pub(crate) fn number_in(&self, name: &str) -> i32 {
        let read = || fs::read_to_string(self.path(name)).ok()?.trim().parse().ok();
        eventually(name, read)
    }

    /// Waits for the file.
    pub(crate) fn wait_for_file(&self, name: &str) {
        eventually(name, || self.path(name).exists().then_some(()));
    }

    pub(crate) fn show(&self, key: &str) -> serde_json::Value {
        let output = self.leasehold("show --json").arg(key).output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until this many claims wait for the key.
    pub(crate) fn wait_for_waiters(&self, key: &str, count: usize) {
        let counted = || (self.show(key)["waiters"].as_array().unwrap().len() == count).then_some(());
        eventually("waiters", counted);
    }
}

/// A runner with its program.
pub(crate) struct Holder {
    pub(crate) runner: Child,
    pub(crate) program: i32,
}

impl Holder {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.runner), signal).unwrap();
    }

    /// Waits for the runner to end by itself.
    pub(crate) fn finish(mut self) -> Output {
        let output = finish(&mut self.runner);
        // Dropped without the kill: it has ended.
        output.unwrap_or_else(|| panic!("the runner did not end"))
    }
}

/// Nothing of a failed test is left behind.
impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.runner.kill();
        let _ = self.runner.wait();
    }
}

/// Waits for a process to end; `None` when it does not.
pub(crate) fn finish(child: &mut Child) -> Option<Output> {
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > until => return None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let read = |from: Option<&mut dyn Read>| {
        let mut bytes = Vec::new();
        from.map(|from| from.read_to_end(&mut bytes));
        bytes
    };
    let stdout = read(child.stdout.as_mut().map(|out| out as &mut dyn Read));
    let stderr = read(child.stderr.as_mut().map(|err| err as &mut dyn Read));
    Some(Output { status, stdout, stderr })
}

/// Asks until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the process runs: a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state comes after the name, which is in brackets and may contain anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether any thread of the process runs, even if its main thread has ended.
pub(crate) fn has_living_thread(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).any(is_alive)
}

/// The guardian of this runner.
pub(crate) fn guardian_of(runner: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{runner}/task/{runner}/children")).ok()?;
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"__guardian")
    })
}

pub(crate) fn wait_until_dead(pid: i32) {
    eventually("the death of a process", || (!is_alive(pid)).then_some(()));
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
