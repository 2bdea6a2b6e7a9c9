//! What happens on other disks and under other limits than those of this machine: in a namespace of its own, so that
//! nobody else notices.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_core::{Client, ErrorKind, Guard, Options, Severity};
use libtest_mimic::{Completion, Failed, Trial};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::warnings::Warnings;
use crate::{Anything, LIMIT, freed, until_waiting, url};

/// The words that this program runs one of these cases for.
pub(crate) const CASES: [&str; 7] = [
    "on-a-full-disk",
    "read-only",
    "on-a-network",
    "replaced-on-a-network",
    "unheard",
    "start-a-job",
    "start-it-again",
];

const ON_A_FULL_DISK: &str =
    "mount -t tmpfs -o size=256k,mode=700 none \"$1\" && exec \"$0\" on-a-full-disk \"$1\"";
const READ_ONLY: &str = "mount -t tmpfs -o ro,mode=700 none \"$1\" && exec \"$0\" read-only \"$1\"";

/// A directory that a program keeps: to the kernel the same as one that comes over a network by such a program.
const FUSE: &str = "/dev/fuse";
const ON_FUSE: &str =
    "mkdir -m 700 \"$1/behind\" \"$1/seen\" ; bindfs -f \"$1/behind\" \"$1/seen\" & keeper=$!
    until mountpoint -q \"$1/seen\"; do kill -0 $keeper || exit 1; sleep 0.02; done
    \"$0\" CASE \"$1/seen\"; code=$?; kill $keeper; wait; exit $code";

/// Two containers, one after the other, whose boot clocks differ by a day. The kernel gives the second time namespace the
/// number of the first, which is gone.
const TWO_CLOCKS: &str = r#"in_namespace() { unshare --time --fork --boottime "$@"; }
    number='readlink /proc/self/ns/time'
    first=$(in_namespace 100000 sh -c "$number; exec \"\$0\" start-a-job \"\$1\"" "$0" "$1") || exit 1
    for attempt in $(seq 50); do [ "$(in_namespace 5 $number)" = "$first" ] && break; sleep 0.1; done
    in_namespace 5 "$0" start-it-again "$1""#;
/// How long the job stays closed.
const AT_LEAST: Duration = Duration::from_secs(1);

/// This user's share of inotify is used up: of its instances, or of what they may watch.
const NO_INSTANCE: &str = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" unheard \"$1\"";
const NO_WATCH: &str = "echo 0 > /proc/sys/user/max_inotify_watches && exec \"$0\" unheard \"$1\"";

/// Where nobody can tell, who waits looks every 30 ms; without that it would look after a second. A busy machine may be
/// slower now and then, but not always.
const LOOKED: Duration = Duration::from_millis(500);

/// How many wait at a time, and how often all of them do.
const CROWD: usize = 6;
const ROUNDS: usize = 3;

pub(crate) fn trials() -> Vec<Trial> {
    let case = |name, script| Trial::ignorable_test(name, move || elsewhere(script));
    let on_fuse = |name, case: &'static str| {
        Trial::ignorable_test(name, move || match Path::new(FUSE).exists() {
            true => elsewhere(&ON_FUSE.replace("CASE", case)),
            false => Ok(Completion::ignored_with(format!("this system has no {FUSE}"))),
        })
    };
    vec![
        case("a_full_disk_is_an_error_and_who_holds_can_leave", ON_A_FULL_DISK),
        case("a_read_only_directory_is_an_error_that_says_so", READ_ONLY),
        on_fuse("a_network_file_system_is_refused_unless_told", "on-a-network"),
        on_fuse("a_client_logs_a_warning_once_although_the_directory_is_replaced", "replaced-on-a-network"),
        Trial::ignorable_test("reused_time_namespace_does_not_prolong_a_tail", || {
            let may = Command::new("unshare").args(["--map-root-user", "--time", "--fork", "true"]).output();
            match may.is_ok_and(|output| output.status.success()) {
                true => elsewhere(TWO_CLOCKS),
                false => Ok(Completion::ignored_with("this user may have no time namespace")),
            }
        }),
        Trial::ignorable_test("another_user_cannot_touch_the_directory", to_a_stranger),
        case("without_inotify_all_have_their_turn_in_order", NO_INSTANCE),
        case("without_room_for_a_watch_all_have_their_turn_in_order", NO_WATCH),
    ]
}

/// Runs one of these cases, where this program was started for it.
#[tokio::main]
pub(crate) async fn run(case: &str, directory: &str) -> Anything {
    match case {
        "on-a-full-disk" => on_a_full_disk(directory).await,
        "read-only" => read_only(directory).await,
        "on-a-network" => on_a_network(directory).await,
        "replaced-on-a-network" => replaced_on_a_network(directory).await,
        "start-a-job" => start_a_job(directory).await,
        "start-it-again" => start_it_again(directory).await,
        _ => unheard(directory).await,
    }
}

/// Runs a case of this program where it may mount something; ignored where nobody may.
fn elsewhere(script: &str) -> Result<Completion, Failed> {
    let own = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).stdin(Stdio::null());
        command
    };
    let (directory, program) = (tempfile::tempdir()?, std::env::current_exe()?);
    let may = own("mount -t tmpfs none \"$0\"").arg(directory.path()).output();
    if !may.is_ok_and(|output| output.status.success()) {
        return Ok(Completion::ignored_with("this user may mount nothing, not even for itself"));
    }
    let output = own(script).arg(program).arg(directory.path()).output()?;
    match output.status.success() {
        true => Ok(Completion::Completed),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

async fn on_a_full_disk(directory: &str) -> Anything {
    let client = Client::new(leasehold_file::file(&url(directory))?).await?;
    let guard = client.mutex("held").with(Options::new().lease(Duration::from_secs(6))).acquire().await?;
    let filler = Path::new(directory).join("filler");
    while fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&filler)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &[0; 512]))
        .is_ok()
    {}
    let refused = client.mutex("another").acquire().await.err().ok_or("there was room")?;
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("no space is left"), "{refused}");
    // Renewing needs no room, and neither does leaving.
    guard.renew(Duration::from_secs(6)).await?;
    guard.release().await?;
    fs::remove_file(&filler)?;
    client.mutex("another").acquire().await?.release().await?;
    Ok(())
}

async fn read_only(directory: &str) -> Anything {
    let refused = Client::new(leasehold_file::file(&url(directory))?).await.err().ok_or("it was written")?;
    assert!(refused.to_string().contains("read-only"), "{refused}");
    Ok(())
}

async fn on_a_network(directory: &str) -> Anything {
    let refused = Client::new(leasehold_file::file(&url(directory))?).await.err().ok_or("it was taken")?;
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let said = refused.to_string();
    assert!(said.contains("FUSE") && said.contains("network=on"), "{said}");
    assert!(fs::read_dir(directory)?.next().is_none(), "nothing was made there");
    let client = Client::new(leasehold_file::file(&format!("{}?network=on", url(directory)))?).await?;
    let warned = client.info().checks.iter().any(|check| check.severity == Severity::Warning);
    assert!(warned, "{:?}", client.info().checks);
    client.mutex("a").acquire().await?.release().await?;
    client.close().await?;
    Ok(())
}

async fn replaced_on_a_network(directory: &str) -> Anything {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone())?;
    let path = format!("{directory}/locks");
    let client = Client::new(leasehold_file::file(&format!("{}?network=on", url(&path)))?).await?;
    client.mutex("a").acquire().await?.release().await?;
    assert_eq!(warnings.count(), 1);
    fs::rename(&path, format!("{directory}/old"))?;
    client.mutex("a").acquire().await?.release().await?;
    assert!(Path::new(&path).exists(), "the client still uses the old directory");
    assert_eq!(warnings.count(), 1, "the same client was warned again");
    client.close().await?;
    Ok(())
}

async fn start_a_job(directory: &str) -> Anything {
    let client = Client::new(leasehold_file::file(&url(directory))?).await?;
    let run = client.job("nightly").at_least(AT_LEAST).start().await?.ok_or("the job is not due")?;
    run.release().await?;
    client.close().await?;
    Ok(())
}

async fn start_it_again(directory: &str) -> Anything {
    let client = Client::new(leasehold_file::file(&url(directory))?).await?;
    let due = async {
        while client.job("nightly").at_least(AT_LEAST).start().await?.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok::<_, leasehold_core::Error>(())
    };
    timeout(AT_LEAST * 20, due).await.map_err(|_| "the job is still closed")??;
    Ok(())
}

async fn unheard(directory: &str) -> Anything {
    let heard = inotify::init(CreateFlags::CLOEXEC)
        .and_then(|ears| inotify::add_watch(ears, directory, WatchFlags::MODIFY));
    assert!(heard.is_err(), "there is inotify: this would prove nothing");
    // Clients of their own, as other processes are: what they are told goes through the directory.
    let client = async || Client::new(leasehold_file::file(&url(directory))?).await;
    let holder = client().await?;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(client().await?);
    }
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut guard = holder.mutex("lock").acquire().await?;
        let mut waiting = JoinSet::new();
        for (place, client) in crowd.iter().enumerate() {
            let one = client.clone();
            waiting.spawn(async move { one.mutex("lock").acquire().await.map(|guard| (place, guard)) });
            until_waiting(client, place + 1).await?;
        }
        for place in 0..CROWD {
            let released = Instant::now();
            guard.release().await?;
            let next = timeout(LIMIT, waiting.join_next()).await?.ok_or("nobody is left")??;
            let (who, granted): (usize, Guard) = next?;
            best = best.min(released.elapsed());
            assert_eq!(who, place, "out of turn");
            guard = granted;
        }
        guard.release().await?;
    }
    assert!(best <= LOOKED, "the fastest turn took {best:?}");
    let freed = freed("hold", directory, 3).await?;
    assert!(freed <= LOOKED, "a killed holder's lock was free after {freed:?} at best");
    Ok(())
}

/// Somebody else on the machine.
const STRANGER: u32 = 65_533;

/// Another user tries to read, change and delete what is in the directory.
fn to_a_stranger() -> Result<Completion, Failed> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(Completion::ignored_with("only root can act as another user"));
    }
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777))?;
    let store = directory.path().join("locks");
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let client = Client::new(leasehold_file::file(&format!("file://{}", store.display()))?).await?;
        let _held = client.mutex("k").acquire().await?;
        for attempt in
            ["ls locks", "cat locks/keys/k", "echo >locks/keys/k", "rm locks/fence", "mv locks old"]
        {
            let mut command = Command::new("sh");
            command.args(["-c", attempt]).current_dir(directory.path()).uid(STRANGER).gid(STRANGER);
            let output = command.stdin(Stdio::null()).output()?;
            assert!(!output.status.success(), "{attempt}: {output:?}");
        }
        Ok(Completion::Completed)
    })
}
