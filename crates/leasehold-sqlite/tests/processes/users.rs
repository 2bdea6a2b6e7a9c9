//! The file between several users of one machine: the members of a group share it, and other users only read it.
//!
//! The program starts itself again as each user, which only root can do.
#![allow(clippy::print_stdout, reason = "a child tells its parent how far it is")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold_core::{Client, Error, ErrorKind};
use leasehold_sqlite::Sqlite;
use libtest_mimic::{Completion, Failed, Trial};

type Anything<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The words that this program runs one of these cases for.
pub(crate) const CASES: [&str; 5] = ["hold", "wait-behind", "be-refused", "only-read", "keep-a-read-lock"];

/// The page whose commands these cases run.
const PAGE: &str = include_str!("../../../../docs/threat-model/sqlite.md");

/// Users and a group of these cases. They need no names.
const ALICE: u32 = 65_501;
const BOB: u32 = 65_502;
const CAROL: u32 = 65_503;
const LOCKS: u32 = 65_510;

/// Ends what hangs.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let case = |name, case: fn() -> Anything| {
        Trial::ignorable_test(name, move || match fs::metadata("/proc/self")?.uid() {
            0 => case().map(|()| Completion::Completed).map_err(Failed::from),
            _ => Ok(Completion::ignored_with("only root can act as another user")),
        })
    };
    vec![
        case("members_of_a_group_share_a_file", group),
        case("reader_of_the_file_cannot_change_locks", reader),
        case("reader_of_the_file_can_block_writers", blocking_reader),
        case("user_who_may_write_a_sticky_directory_cannot_touch_the_file", directory_writer),
    ]
}

/// Runs one of these cases, where this program was started for it.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(case: &str, path: &str) -> Anything {
    match case {
        "hold" => hold(path).await,
        "wait-behind" => wait_behind(path).await,
        "only-read" => only_read(path).await,
        "keep-a-read-lock" => keep_a_read_lock(path),
        _ => be_refused(path).await,
    }
}

/// A directory that every user may enter.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Anything<Self> {
        let directory = tempfile::tempdir()?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        // The program is where only root may look, so the users get a copy.
        fs::copy(std::env::current_exe()?, directory.path().join("program"))?;
        Ok(Self(directory))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts a case of this program as a user with one group.
    fn start(&self, user: u32, group: u32, case: &str, path: &Path) -> Anything<Running> {
        let mut command = Command::new(self.path("program"));
        command.arg(case).arg(path).current_dir("/").uid(user).gid(group);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("a child with output")?);
        Ok(Running { child, lines })
    }

    /// Runs the commands of the page for several lock clients, in a directory of this name.
    fn follow_the_page(&self, directory: &str) -> Anything {
        let commands: Vec<String> = PAGE
            .lines()
            .filter(|line| line.starts_with("install "))
            .map(|line| line.replace("-g locks", &format!("-g {LOCKS}")))
            .map(|line| line.replace("/var/lib/locks", &self.path(directory).display().to_string()))
            .collect();
        assert_eq!(commands.len(), 2, "the page has other commands: {commands:?}");
        let status = Command::new("sh").args(["-ec", &commands.join("\n")]).status()?;
        assert!(status.success(), "{commands:?}: {status}");
        Ok(())
    }
}

/// A case of this program. It is killed when this is dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Waits until it says this.
    fn says(&mut self, expected: &str) -> Anything {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line.trim_end() == expected {
            return Ok(());
        }
        let mut why = String::new();
        self.child.stderr.take().ok_or("a child with errors")?.read_to_string(&mut why)?;
        Err(format!("{line:?} and not {expected:?}: {why}").into())
    }

    /// Tells it to go on, by closing its input.
    fn go_on(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn client(path: &str) -> Result<Client, Error> {
    Client::new(Sqlite::from_url(&format!("sqlite://{path}"))?).await
}

/// Waits until the input ends.
fn until_told() -> std::io::Result<()> {
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Holds the lock until its input ends.
async fn hold(path: &str) -> Anything {
    let client = client(path).await?;
    let guard = client.mutex("k").acquire().await?;
    println!("held");
    tokio::task::spawn_blocking(until_told).await??;
    guard.release().await?;
    client.close().await?;
    println!("released");
    Ok(())
}

/// Finds the lock held, and gets it when it is released.
async fn wait_behind(path: &str) -> Anything {
    let client = client(path).await?;
    assert!(client.mutex("k").try_acquire().await?.is_none(), "two hold");
    println!("busy");
    let guard = client.mutex("k").acquire_within(LIMIT).await?.ok_or("the lock was not released")?;
    guard.release().await?;
    client.close().await?;
    println!("held");
    Ok(())
}

async fn be_refused(path: &str) -> Anything {
    let error = client(path).await.err().ok_or("the file can be opened")?;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    println!("refused");
    Ok(())
}

/// The file and its directory may belong to any member: the others are lock clients too, and trust that member.
fn group() -> Anything {
    let machine = Machine::new()?;
    for (number, (directory_owner, file_owner)) in [(0, 0), (ALICE, ALICE), (ALICE, BOB)].iter().enumerate() {
        let name = format!("locks-{number}");
        machine.follow_the_page(&name)?;
        let (directory, file) = (machine.path(&name), machine.path(&name).join("locks.db"));
        chown(&directory, Some(*directory_owner), None)?;
        chown(&file, Some(*file_owner), None)?;
        let mut holder = machine.start(BOB, LOCKS, "hold", &file)?;
        holder.says("held")?;
        let mut waiter = machine.start(CAROL, LOCKS, "wait-behind", &file)?;
        waiter.says("busy")?;
        machine.start(CAROL, CAROL, "be-refused", &file)?.says("refused")?;
        holder.go_on();
        holder.says("released")?;
        waiter.says("held")?;
    }
    Ok(())
}

/// A directory of root with a file of this mode.
fn file_of_root(machine: &Machine, directory_mode: u32, file_mode: u32) -> Anything<PathBuf> {
    let directory = machine.path("locks");
    fs::create_dir(&directory)?;
    chown(&directory, None, Some(LOCKS))?;
    fs::set_permissions(&directory, Permissions::from_mode(directory_mode))?;
    let file = directory.join("locks.db");
    fs::write(&file, "")?;
    fs::set_permissions(&file, Permissions::from_mode(file_mode))?;
    Ok(file)
}

/// Holds a lock while another user runs a case, and sees that nothing has changed.
#[tokio::main(flavor = "current_thread")]
async fn hold_meanwhile(file: &Path, meanwhile: impl FnOnce() -> Anything) -> Anything {
    let path = file.to_str().ok_or("a path that is text")?;
    let (one, two) = (client(path).await?, client(path).await?);
    let guard = one.mutex("k").acquire().await?;
    meanwhile()?;
    assert!(two.mutex("k").try_acquire().await?.is_none(), "two hold");
    let holder = two.inspect("k").await?.and_then(|lock| lock.holders.first().map(|holder| holder.token));
    assert_eq!(holder, Some(guard.token()));
    guard.release().await?;
    Ok(())
}

fn reader() -> Anything {
    let machine = Machine::new()?;
    let file = file_of_root(&machine, 0o755, 0o644)?;
    hold_meanwhile(&file, || machine.start(BOB, BOB, "only-read", &file)?.says("done"))
}

/// Tries everything with a file that this user may only read.
async fn only_read(path: &str) -> Anything {
    use rusqlite::{Connection, OpenFlags};
    let seen = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let keys = "SELECT count(*) FROM leasehold WHERE key = CAST('k' AS BLOB) AND held > 0";
    assert!(seen.query_row(keys, [], |row| row.get::<_, i64>(0))? > 0, "the reader does not see the lock");
    let writer = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    for change in ["DELETE FROM leasehold", "UPDATE leasehold SET held = 0", "PRAGMA journal_mode = DELETE"] {
        assert!(writer.execute_batch(change).is_err(), "{change}");
    }
    for name in ["", "-wal", "-shm"].map(|suffix| format!("{path}{suffix}")) {
        fs::read(&name)?;
        assert!(fs::OpenOptions::new().write(true).open(&name).is_err(), "{name} can be written");
        assert!(fs::remove_file(&name).is_err(), "{name} can be deleted");
        assert!(fs::rename(&name, format!("{name}.old")).is_err(), "{name} can be renamed");
    }
    assert!(fs::write(format!("{path}-journal"), "").is_err(), "files can be created beside it");
    let client = client(path).await?;
    let holder = client.inspect("k").await?.and_then(|lock| lock.holders.first().map(|holder| holder.token));
    let token = holder.ok_or("a client of the reader does not see the lock")?;
    for refused in [client.mutex("free").acquire().await.err(), client.evict("k", token).await.err()] {
        let refused = refused.ok_or("a reader can change locks")?;
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    }
    println!("done");
    Ok(())
}

/// SQLite's locks are locks of the file `-shm`, and the kernel lets every reader of a file keep a shared one.
#[tokio::main(flavor = "current_thread")]
async fn blocking_reader() -> Anything {
    let machine = Machine::new()?;
    let file = file_of_root(&machine, 0o755, 0o644)?;
    let store = Sqlite::from_url(&format!("sqlite://{}", file.display()))?;
    let client = Client::builder().call_timeout(Duration::from_secs(1)).connect(store).await?;
    client.mutex("k").acquire().await?.release().await?;
    let mut reader = machine.start(BOB, BOB, "keep-a-read-lock", &file)?;
    reader.says("kept")?;
    let error = client.mutex("k").acquire().await.err().ok_or("the file was written")?;
    assert!(error.is_retryable(), "{error}");
    reader.go_on();
    reader.says("done")?;
    client.mutex("k").acquire().await?.release().await?;
    Ok(())
}

fn keep_a_read_lock(path: &str) -> Anything {
    let file = fs::File::open(format!("{path}-shm"))?;
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockShared)?;
    println!("kept");
    until_told()?;
    drop(file);
    println!("done");
    Ok(())
}

fn directory_writer() -> Anything {
    let machine = Machine::new()?;
    let file = file_of_root(&machine, 0o3770, 0o600)?;
    let directory = file.parent().ok_or("a directory")?;
    hold_meanwhile(&file, || machine.start(BOB, LOCKS, "intrude", directory)?.says("refused"))
}
