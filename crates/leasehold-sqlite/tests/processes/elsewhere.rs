//! The file under another mount, another file system, another clock and another owner. Each case runs in namespaces of
//! its own, so that the machine stays as it is.
#![allow(clippy::print_stdout, reason = "a child tells its parent how far it is")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_core::{Client, Error, ErrorKind, Loss, Options, Severity};
use leasehold_sqlite::Sqlite;
use libtest_mimic::{Completion, Failed, Trial};
use tokio::time::timeout;

type Anything = Result<(), Box<dyn std::error::Error>>;

/// The words that this program runs one of these cases for.
pub(crate) const CASES: [&str; 8] = [
    "bound-file",
    "bound-directory",
    "on-fuse",
    "on-a-full-disk",
    "read-only",
    "hold-and-die",
    "take-over",
    "intrude",
];

const BOUND_FILE: &str = "mkdir \"$1/host\" \"$1/box\" && touch \"$1/host/locks.db\" \"$1/box/locks.db\"
    mount --bind \"$1/host/locks.db\" \"$1/box/locks.db\" && exec \"$0\" bound-file \"$1\"";
const BOUND_DIRECTORY: &str = "mkdir \"$1/host\" \"$1/box\" && mount --bind \"$1/host\" \"$1/box\" &&
    exec \"$0\" bound-directory \"$1\"";

const ON_A_FULL_DISK: &str =
    "mount -t tmpfs -o size=512k,mode=700 none \"$1\" && exec \"$0\" on-a-full-disk \"$1\"";
const READ_ONLY: &str = "mount -t tmpfs -o ro,mode=700 none \"$1\" && exec \"$0\" read-only \"$1\"";

/// bindfs serves a directory through FUSE, as programs do that bring files over a network.
const FUSE: &str = "/dev/fuse";
const ON_FUSE: &str =
    "mkdir -m 700 \"$1/behind\" \"$1/seen\" ; bindfs -f \"$1/behind\" \"$1/seen\" & server=$!
    until mountpoint -q \"$1/seen\"; do kill -0 $server || exit 1; sleep 0.02; done
    \"$0\" on-fuse \"$1/seen\"; code=$?; kill $server; wait; exit $code";

/// Two containers, one after the other, whose boot clocks differ by a day. The kernel gives the second time namespace the
/// number of the first, which is gone.
const TWO_CLOCKS: &str = r#"in_namespace() { unshare --time --fork --boottime "$@"; }
    number='readlink /proc/self/ns/time'
    first=$(in_namespace 100000 sh -c "$number; exec \"\$0\" hold-and-die \"\$1\"" "$0" "$1") || exit 1
    for attempt in $(seq 50); do [ "$(in_namespace 5 $number)" = "$first" ] && break; sleep 0.1; done
    in_namespace 5 "$0" take-over "$1""#;

/// The lease of a process that dies, and how long the next one waits: much longer, and much shorter than a day.
const LEASE: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(30);

/// Somebody else on the machine.
const STRANGER: u32 = 65_533;

pub(crate) fn trials() -> Vec<Trial> {
    let case =
        |name, may: &'static str, script| Trial::ignorable_test(name, move || in_namespaces(may, script));
    let mount = "mount -t tmpfs none \"$1\"";
    vec![
        case("bind_mounted_file_is_refused", mount, BOUND_FILE),
        case("bind_mounted_directory_shares_its_locks", mount, BOUND_DIRECTORY),
        Trial::ignorable_test("network_file_system_is_refused_unless_allowed", move || {
            match Path::new(FUSE).exists() {
                true => in_namespaces(mount, ON_FUSE),
                false => Ok(Completion::ignored_with(format!("this system has no {FUSE}"))),
            }
        }),
        case("full_disk_costs_the_hold_by_its_deadline_and_requests_fail", mount, ON_A_FULL_DISK),
        case("read_only_disk_is_an_error_that_says_so", mount, READ_ONLY),
        case("reused_time_namespace_does_not_prolong_a_dead_lease", "unshare --time --fork true", TWO_CLOCKS),
        Trial::ignorable_test("file_of_another_user_in_a_sticky_directory_is_refused", of_a_stranger),
        Trial::ignorable_test("another_user_cannot_touch_the_file", to_a_stranger),
    ]
}

/// Runs one of these cases, where this program was started for it.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(case: &str, directory: &str) -> Anything {
    match case {
        "bound-file" => bound_file(directory).await,
        "bound-directory" => bound_directory(directory).await,
        "on-fuse" => on_fuse(directory).await,
        "on-a-full-disk" => on_a_full_disk(directory).await,
        "read-only" => read_only(directory).await,
        "intrude" => intrude(directory).await,
        "hold-and-die" => hold_and_die(directory).await,
        _ => take_over(directory).await,
    }
}

/// Runs `script` as root of namespaces of its own; ignored where this user may not do what `may` does there.
fn in_namespaces(may: &str, script: &str) -> Result<Completion, Failed> {
    let (directory, program) = (tempfile::tempdir()?, std::env::current_exe()?);
    let own = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).stdin(Stdio::null());
        command.arg(&program).arg(directory.path());
        command
    };
    if !own(may).output().is_ok_and(|output| output.status.success()) {
        return Ok(Completion::ignored_with(format!("this user may not run: {may}")));
    }
    let output = own(script).output()?;
    match output.status.success() {
        true => Ok(Completion::Completed),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

async fn client(path: &str, query: &str) -> Result<Client, Error> {
    Client::builder()
        .defaults(Options::new().lease(LEASE))
        .connect(Sqlite::from_url(&format!("sqlite://{path}{query}"))?)
        .await
}

async fn refusal(path: &str) -> Result<String, Box<dyn std::error::Error>> {
    Ok(client(path, "").await.err().ok_or_else(|| format!("{path} was not refused"))?.to_string())
}

async fn bound_file(directory: &str) -> Anything {
    let host = client(&format!("{directory}/host/locks.db"), "").await?;
    let _held = host.mutex("k").acquire().await?;
    let said = refusal(&format!("{directory}/box/locks.db")).await?;
    assert!(said.contains("share the directory, not the file"), "{said}");
    Ok(())
}

async fn bound_directory(directory: &str) -> Anything {
    let host = client(&format!("{directory}/host/locks.db"), "").await?;
    let guest = client(&format!("{directory}/box/locks.db"), "").await?;
    let held = host.mutex("k").acquire().await?;
    assert!(guest.mutex("k").try_acquire().await?.is_none(), "both hold");
    held.release().await?;
    assert!(guest.mutex("k").try_acquire().await?.is_some(), "the guest does not see the release");
    Ok(())
}

async fn on_fuse(directory: &str) -> Anything {
    let path = format!("{directory}/locks.db");
    let refused = client(&path, "").await.err().ok_or("the store accepted a file on FUSE")?;
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let said = refused.to_string();
    assert!(said.contains("FUSE") && said.contains("network=on"), "{said}");
    assert!(fs::read_dir(directory)?.next().is_none(), "the store created files");
    let client = client(&path, "?network=on").await?;
    let warned = client.info().checks.iter().any(|check| check.severity == Severity::Warning);
    assert!(warned, "{:?}", client.info().checks);
    client.mutex("a").acquire().await?.release().await?;
    client.close().await?;
    Ok(())
}

async fn on_a_full_disk(directory: &str) -> Anything {
    let client = client(&format!("{directory}/locks.db"), "").await?;
    let held = client.mutex("held").acquire().await?;
    let filler = Path::new(directory).join("filler");
    let write = |bytes: &[u8]| {
        let file = fs::OpenOptions::new().append(true).create(true).open(&filler);
        file.and_then(|mut file| std::io::Write::write_all(&mut file, bytes))
    };
    while write(&[0; 512]).is_ok() {}
    // The last page of the log may have room for one more commit.
    let refused = loop {
        if let Err(error) = client.mutex("another").acquire().await {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("the disk is full: free some space"), "{refused}");
    assert_eq!(timeout(LIMIT, held.lost()).await?, Loss::Expired);
    fs::remove_file(&filler)?;
    let next = client.mutex("held").acquire().await?;
    assert!(next.token() > held.token());
    next.release().await?;
    Ok(())
}

async fn read_only(directory: &str) -> Anything {
    let refused = client(&format!("{directory}/locks.db"), "").await.err().ok_or("the store wrote a file")?;
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(refused.to_string().contains("choose a place that you may write"), "{refused}");
    Ok(())
}

async fn hold_and_die(directory: &str) -> Anything {
    let client = client(&format!("{directory}/locks.db"), "").await?;
    let _held = client.mutex("k").acquire().await?;
    std::process::exit(0);
}

async fn take_over(directory: &str) -> Anything {
    let client = client(&format!("{directory}/locks.db"), "").await?;
    let held = client.mutex("k").acquire_within(LIMIT).await?;
    assert!(held.is_some(), "the lock of a dead process is still held after {LIMIT:?}");
    Ok(())
}

/// In a sticky directory anybody can create the file, or one of SQLite's files beside it, before its rightful user does.
fn of_a_stranger() -> Result<Completion, Failed> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(Completion::ignored_with("only root can give a file to another user"));
    }
    for name in ["locks.db", "locks.db-wal", "locks.db-shm", "locks.db-journal"] {
        let directory = tempfile::tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777))?;
        let file = directory.path().join(name);
        fs::write(&file, "")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
        chown(&file, Some(STRANGER), None)?;
        let path = directory.path().join("locks.db");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let refused = runtime.block_on(client(&path.display().to_string(), ""));
        let said = refused.err().ok_or_else(|| format!("{name} of another user was accepted"))?.to_string();
        assert!(said.contains(&STRANGER.to_string()), "{said}");
    }
    Ok(Completion::Completed)
}

/// Another user tries everything on a file in a directory that is open to all, but sticky.
fn to_a_stranger() -> Result<Completion, Failed> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(Completion::ignored_with("only root can act as another user"));
    }
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777))?;
    let path = directory.path().join("locks.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = client(&path.display().to_string(), "").await?;
        let _held = client.mutex("k").acquire().await?;
        // The program is where only root may look, so the other user gets a copy.
        let program = directory.path().join("program");
        fs::copy(std::env::current_exe()?, &program)?;
        let mut command = Command::new(&program);
        command.arg("intrude").arg(directory.path()).uid(STRANGER).gid(STRANGER);
        let output = command.current_dir("/").stdin(Stdio::null()).output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Completion::Completed)
    })
}

async fn intrude(directory: &str) -> Anything {
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let file = format!("{directory}/{name}");
        assert!(fs::read(&file).is_err(), "{name} can be read");
        assert!(fs::OpenOptions::new().write(true).open(&file).is_err(), "{name} can be written");
        assert!(fs::remove_file(&file).is_err(), "{name} can be deleted");
        assert!(fs::rename(&file, format!("{file}.old")).is_err(), "{name} can be renamed");
    }
    let protected = fs::read_to_string("/proc/sys/fs/protected_hardlinks")?.trim() != "0";
    let link = format!("{directory}/link.db");
    assert!(!protected || fs::hard_link(format!("{directory}/locks.db"), link).is_err(), "it can be linked");
    let refused = client(&format!("{directory}/locks.db"), "").await.err().ok_or("it can be opened")?;
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    println!("refused");
    Ok(())
}
