//! What happens on other disks and under other limits than those of this machine: in a namespace of its own, so that
//! nobody else notices.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_core::{Client, ErrorKind, Guard, Options};
use libtest_mimic::{Completion, Failed, Trial};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{Anything, LIMIT, freed, until_waiting, url};

/// The words that this program runs one of these cases for.
pub(crate) const CASES: [&str; 4] = ["on-a-full-disk", "read-only", "on-a-network", "unheard"];

const ON_A_FULL_DISK: &str =
    "mount -t tmpfs -o size=256k,mode=700 none \"$1\" && exec \"$0\" on-a-full-disk \"$1\"";
const READ_ONLY: &str = "mount -t tmpfs -o ro,mode=700 none \"$1\" && exec \"$0\" read-only \"$1\"";

/// A directory that a program keeps: to the kernel the same as one that comes over a network by such a program.
const FUSE: &str = "/dev/fuse";
const ON_FUSE: &str =
    "mkdir -m 700 \"$1/behind\" \"$1/seen\" ; bindfs -f \"$1/behind\" \"$1/seen\" & keeper=$!
    until mountpoint -q \"$1/seen\"; do kill -0 $keeper || exit 1; sleep 0.02; done
    \"$0\" on-a-network \"$1/seen\"; code=$?; kill $keeper; wait; exit $code";

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
    vec![
        case("a_full_disk_is_an_error_and_who_holds_can_leave", ON_A_FULL_DISK),
        case("a_read_only_directory_is_an_error_that_says_so", READ_ONLY),
        Trial::ignorable_test("a_network_file_system_is_refused_unless_told", || {
            match Path::new(FUSE).exists() {
                true => elsewhere(ON_FUSE),
                false => Ok(Completion::ignored_with(format!("this system has no {FUSE}"))),
            }
        }),
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
    assert!(said.contains("is on FUSE") && said.contains("say network=on"), "{said}");
    assert!(fs::read_dir(directory)?.next().is_none(), "nothing was made there");
    let client = Client::new(leasehold_file::file(&format!("{}?network=on", url(directory)))?).await?;
    client.mutex("a").acquire().await?.release().await?;
    client.close().await?;
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
