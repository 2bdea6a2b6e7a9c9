//! What the store promises when somebody meddles with its directory.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Loss, Options, Result, Severity};
use tempfile::TempDir;
use tokio::time::timeout;

const LEASE: Duration = Duration::from_secs(6);
/// Ends what hangs.
const LIMIT: Duration = Duration::from_secs(60);

async fn client(directory: &Path) -> Result<Client> {
    let store = leasehold_file::file(&format!("file://{}?timeout=500ms", directory.display()))?;
    Client::builder().defaults(Options::new().lease(LEASE)).connect(store).await
}

fn directory() -> TempDir {
    TempDir::new().expect("there is room for a directory")
}

#[tokio::test]
async fn everything_belongs_to_its_user_alone() {
    let directory = directory();
    let store = directory.path().join("new");
    let client = client(&store).await.unwrap();
    let guard = client.mutex("a/b").acquire().await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&store), 0o700);
    for entry in fs::read_dir(&store).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            assert_eq!(mode(&path), 0o600, "{path:?}");
            continue;
        }
        assert_eq!(mode(&path), 0o700, "{path:?}");
        for entry in fs::read_dir(&path).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn info_lists_the_checked_settings() {
    let directory = directory();
    let client = client(&directory.path().join("locks")).await.unwrap();
    let checks = &client.info().checks;
    let names: Vec<_> = checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["file system", "owner", "mode"]);
    assert!(checks.iter().all(|check| check.severity == Severity::Ok), "{checks:?}");
    assert_eq!(checks[2].found, "0700");
}

#[tokio::test]
async fn a_client_that_is_closed_leaves_no_session() {
    let directory = directory();
    let client = client(directory.path()).await.unwrap();
    client.mutex("a").acquire().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
    drop(client);
    let count = |name: &str| fs::read_dir(directory.path().join(name)).unwrap().count();
    let gone = async {
        while (count("keys"), count("sessions"), count("news")) != (0, 0, 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LIMIT, gone).await.expect("nothing is left");
}

#[tokio::test]
async fn a_directory_that_is_removed_costs_the_hold_and_the_client_goes_on_in_a_new_one() {
    let directory = directory();
    let store = directory.path().join("locks");
    let client = client(&store).await.unwrap();
    let guard = client.mutex("a").acquire().await.unwrap();
    fs::remove_dir_all(&store).unwrap();
    assert_eq!(timeout(LIMIT, guard.lost()).await.expect("the loss is signalled"), Loss::Gone);
    let again = timeout(LIMIT, client.mutex("a").acquire()).await.unwrap().unwrap();
    assert!(again.token() > guard.token());
    assert!(store.join("keys/a").exists());
    again.release().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_others_may_write_to_is_refused() {
    let directory = directory();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = client(directory.path()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.to_string().contains("chmod 700"), "{refused}");
}

#[tokio::test]
async fn a_link_in_the_place_of_a_file_is_never_followed() {
    let directory = directory();
    let (store, precious) = (directory.path().join("locks"), directory.path().join("precious"));
    fs::write(&precious, "do not touch").unwrap();
    let client = client(&store).await.unwrap();
    symlink(&precious, store.join("keys/a")).unwrap();
    let refused = client.mutex("a").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    // Where a record is written before it takes its place.
    symlink(&precious, store.join("new")).unwrap();
    let refused = client.mutex("b").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "do not touch");
}

#[tokio::test]
async fn a_process_that_stands_still_with_the_directory_s_lock_stops_nobody_for_ever() {
    let directory = directory();
    let client = client(directory.path()).await.unwrap();
    let lock = File::open(directory.path().join("lock")).unwrap();
    lock.lock().unwrap();
    let refused = timeout(LIMIT, client.mutex("a").try_acquire()).await.expect("it ends").unwrap_err();
    assert!(refused.is_retryable() && refused.to_string().contains("stands still"), "{refused}");
    lock.unlock().unwrap();
    client.mutex("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_file_that_was_not_finished_is_none_and_a_foreign_one_is_a_conflict() {
    let directory = directory();
    let client = client(directory.path()).await.unwrap();
    fs::write(directory.path().join("keys/torn"), "leasehold 1 17 0 200\n{\"lease").unwrap();
    client.mutex("torn").acquire().await.unwrap().release().await.unwrap();
    fs::write(directory.path().join("keys/foreign"), "a shopping list").unwrap();
    let refused = client.mutex("foreign").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains("keys/foreign is not ours"), "{refused}");
}

#[tokio::test]
async fn tokens_rise_when_the_clock_was_set_back() {
    let directory = directory();
    let client = client(directory.path()).await.unwrap();
    // Somebody's numbers were those of a clock a year ahead.
    let ahead = 4_000_000_000_000_000_u64;
    fs::write(directory.path().join("fence"), format!("{ahead:020}")).unwrap();
    let mut last = ahead;
    for _ in 0..5 {
        let guard = client.mutex("a").acquire().await.unwrap();
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn what_a_session_without_a_process_left_is_swept() {
    let directory = directory();
    client(directory.path()).await.unwrap();
    let name = "0123456789abcdef0123456789abcdef";
    fs::write(directory.path().join("sessions").join(name), format!("{:020}", u64::MAX)).unwrap();
    fs::write(directory.path().join("news").join(name), "").unwrap();
    client(directory.path()).await.unwrap();
    assert!(!directory.path().join("sessions").join(name).exists());
    assert!(!directory.path().join("news").join(name).exists());
}
