//! A process that uses the file: the power cut ends it, and the next boot starts another one.
//!
//! The test program starts itself again, inside the mount namespace of the disk. It reads requests from its standard input and
//! writes a line for each.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold_core::{Client, Guard, Options, Result, Run};
use leasehold_servers::PowerDisk;
use leasehold_sqlite::{Settings, Sqlite, SyncMode};

/// The first argument of such a process.
const PART: &str = "use-the-file";
/// No lease ends during a trial.
const LEASE: Duration = Duration::from_secs(600);
/// The limit that programs declare for a semaphore.
const DECLARED: u64 = 5;

/// The running process, which is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    /// Starts it on a file of this disk, in a boot of this name.
    pub(crate) fn start(disk: &PowerDisk, sync: &str, boot: &str) -> Self {
        let words = disk.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(std::env::current_exe().unwrap());
        command.arg(PART).arg(disk.path().join("locks.db")).args([sync, boot]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, requests, answers: BufReader::new(answers) }
    }

    /// What it answers.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        writeln!(self.requests, "{request}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// When this process was started by [`Program::start`]: answers requests until there are no more. `None` in other processes.
pub(crate) fn main() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().collect();
    let [_, part, path, sync, boot] = &*words else { return None };
    (part == PART).then(|| serve(path, sync, boot))
}

#[tokio::main]
async fn serve(path: &str, sync: &str, boot: &str) -> ExitCode {
    let sync = if sync == "full" { SyncMode::Full } else { SyncMode::Normal };
    let store = Sqlite::open(path, Settings::new().sync(sync).epoch(boot)).unwrap();
    let client = Client::builder().defaults(Options::new().lease(LEASE)).connect(store).await.unwrap();
    let mut guards = Vec::new();
    for request in std::io::stdin().lines() {
        let request = request.unwrap();
        let words: Vec<&str> = request.split(' ').collect();
        let answer = answer(&client, &mut guards, &words).await.unwrap_or_else(|error| error.to_string());
        let _ = writeln!(std::io::stdout(), "{answer}");
    }
    ExitCode::SUCCESS
}

async fn answer(client: &Client, guards: &mut Vec<Guard>, words: &[&str]) -> Result<String> {
    Ok(match *words {
        ["acquire", key] => {
            guards.push(client.mutex(key).acquire().await?);
            guards[guards.len() - 1].token().to_string()
        }
        ["try", key] => match client.mutex(key).try_acquire().await? {
            Some(guard) => {
                guards.push(guard);
                guards[guards.len() - 1].token().to_string()
            }
            None => "busy".to_owned(),
        },
        ["evict", key, token] => client.evict(key, token.parse().unwrap()).await?.to_string(),
        ["release", key] => {
            let at = guards.iter().position(|guard| guard.key().as_str() == key).unwrap();
            guards.remove(at).release().await?;
            "released".to_owned()
        }
        ["set", key, count] => client.latch(key).set(count.parse().unwrap()).await?.to_string(),
        ["count-down", key] => client.latch(key).count_down().await?.to_string(),
        ["count", key] => client.latch(key).count().await?.to_string(),
        ["resize", key, permits] => {
            client.semaphore(key, DECLARED).resize(permits.parse().unwrap()).await?;
            "resized".to_owned()
        }
        ["available", key] => client.semaphore(key, DECLARED).available().await?.to_string(),
        ["run", key] => {
            let job = client.job(key).at_most(LEASE).at_least(LEASE);
            match job.run(|_token| async {}).await? {
                Run::Ran(()) => "ran".to_owned(),
                Run::Skipped(_) => "skipped".to_owned(),
            }
        }
        _ => panic!("no such request: {words:?}"),
    })
}
