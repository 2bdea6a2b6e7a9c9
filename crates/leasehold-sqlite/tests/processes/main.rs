//! Many processes on one file.

mod elsewhere;
mod users;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use leasehold_core::Client;
use leasehold_sqlite::{Settings, Sqlite};
use libtest_mimic::{Arguments, Failed, Trial};

const PROCESSES: usize = 64;
const INCREMENTS: u64 = 10;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, path, counter, increments] = &*words
        && word == "increment-under-the-lock"
    {
        return increment(path, counter, increments.parse().expect("a number"));
    }
    if let [_, case, directory] = &*words
        && elsewhere::CASES.contains(&case.as_str())
    {
        return match elsewhere::run(case, directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => panic!("{error}"),
        };
    }
    if let [_, case, path] = &*words
        && users::CASES.contains(&case.as_str())
    {
        return match users::run(case, path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => panic!("{error}"),
        };
    }
    let mut trials = vec![
        Trial::test("processes_that_create_the_file_at_once_all_get_it", || contend(1)),
        Trial::test("no_increment_is_lost_and_no_process_sees_an_error", || contend(INCREMENTS)),
    ];
    trials.extend(elsewhere::trials());
    trials.extend(users::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// All processes at once on a file that is not there yet, each adding to a counter that only the lock protects.
fn contend(increments: u64) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let (path, counter) = (directory.path().join("new/locks.db"), directory.path().join("counter"));
    fs::create_dir(directory.path().join("new"))?;
    fs::write(&counter, "0")?;
    let children: Vec<Child> =
        (0..PROCESSES).map(|_| start(&path, &counter, increments)).collect::<std::io::Result<_>>()?;
    for child in children {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
    }
    let counted = fs::read_to_string(&counter)?;
    let expected = (PROCESSES as u64 * increments).to_string();
    if counted != expected {
        return Err(format!("the counter is {counted}, not {expected}").into());
    }
    let left: Vec<_> = fs::read_dir(directory.path().join("new"))?
        .map(|file| Ok(file?.file_name()))
        .collect::<std::io::Result<_>>()?;
    if left != ["locks.db"] {
        return Err(format!("files are left behind: {left:?}").into());
    }
    Ok(())
}

fn start(path: &Path, counter: &Path, increments: u64) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("increment-under-the-lock").arg(path).arg(counter).arg(increments.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}

/// What each process does.
#[tokio::main(flavor = "current_thread")]
async fn increment(path: &str, counter: &str, increments: u64) -> ExitCode {
    match add(path, counter, increments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => panic!("{error}"),
    }
}

async fn add(path: &str, counter: &str, increments: u64) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::new(Sqlite::open(path, Settings::new())?).await?;
    for _ in 0..increments {
        let guard = client.mutex("counter").acquire().await?;
        let value: u64 = fs::read_to_string(counter)?.parse()?;
        tokio::task::yield_now().await;
        fs::write(counter, (value + 1).to_string())?;
        guard.release().await?;
    }
    client.close().await?;
    Ok(())
}
