//! The file: who may use it, whose it is, and what is left of it.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use leasehold_core::{Answer, Check, Error, ErrorKind, Severity, Store};
use leasehold_sqlite::{Settings, Sqlite, SyncMode};
use support::{Place, Warnings, begin, claim, token};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

async fn refusal(path: &Path) -> Error {
    begin(&Sqlite::open(path, Settings::new()).unwrap()).await.unwrap_err()
}

fn write_database(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn only_the_owner_can_use_the_files() {
    let place = Place::new();
    let path = place.path();
    let store = Sqlite::open(&path, Settings::new()).unwrap();
    begin(&store).await.unwrap();
    store.claim(&claim("a")).await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = path.with_file_name(format!("locks.db{suffix}"));
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn mistyped_directory_is_refused_and_not_made() {
    let place = Place::new();
    let missing = place.path().with_file_name("stat");
    let error = refusal(&missing.join("locks.db")).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let message = format!("there is no directory {}: create it, or correct the path", missing.display());
    assert!(error.to_string().contains(&message), "{error}");
    assert!(!missing.exists());
}

/// The pages of the log, and how many of them are in the file.
fn log_pages(path: &Path) -> (i64, i64) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let pages = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
    connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], pages).unwrap()
}

#[tokio::test]
async fn closing_moves_a_log_into_the_file_only_if_it_is_long() {
    for (cycles, is_long) in [(1, false), (100, true)] {
        let place = Place::new();
        let store = place.store(Settings::new()).await;
        for _ in 0..cycles {
            let claim = claim("a");
            store.claim(&claim).await.unwrap();
            store.release(&claim, None).await.unwrap();
        }
        drop(store);
        let (pages, moved) = log_pages(&place.path());
        assert!(
            pages > 0 && (moved == pages) == is_long,
            "{moved} of {pages} pages moved after {cycles} cycles"
        );
    }
}

#[tokio::test]
async fn closing_leaves_no_thread_and_no_descriptor() {
    let count = || {
        let threads = fs::read_dir("/proc/self/task").unwrap().filter(|task| {
            let name = task.as_ref().unwrap().path().join("comm");
            fs::read_to_string(name).is_ok_and(|name| name.starts_with("leasehold"))
        });
        let place = "locks-of-this-test.db";
        let files = fs::read_dir("/proc/self/fd").unwrap().filter(|fd| {
            let link = fs::read_link(fd.as_ref().unwrap().path());
            link.is_ok_and(|link| link.to_string_lossy().contains(place))
        });
        (threads.count(), files.count())
    };
    let place = Place::new();
    let path = place.path().with_file_name("locks-of-this-test.db");
    let store = Sqlite::open(&path, Settings::new()).unwrap();
    begin(&store).await.unwrap();
    let (threads, files) = count();
    assert!(threads > 0 && files > 0, "the test looks in the wrong place");
    drop(store);
    assert_eq!(count().1, 0);
    // Other tests of this file run meanwhile and have threads of their own: ours was joined.
    drop(place);
}

#[tokio::test]
async fn a_symbolic_link_is_refused() {
    let place = Place::new();
    let target = place.path().with_file_name("target.db");
    fs::write(&target, "").unwrap();
    symlink(&target, place.path()).unwrap();
    let error = refusal(&place.path()).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[tokio::test]
async fn a_second_name_of_the_file_is_refused() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    token(store.claim(&claim("a")).await.unwrap());
    let other = place.path().with_file_name("other");
    fs::create_dir(&other).unwrap();
    fs::hard_link(place.path(), other.join("locks.db")).unwrap();
    let error = refusal(&other.join("locks.db")).await;
    assert!(error.to_string().contains("share the directory, not the file"), "{error}");
}

#[tokio::test]
async fn a_second_name_made_while_in_use_is_noticed() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let other = place.path().with_file_name("other.db");
    fs::hard_link(place.path(), &other).unwrap();
    // The store looks at most once a millisecond.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let error = store.claim(&claim("a")).await.unwrap_err();
    assert!(error.to_string().contains("share the directory, not the file"), "{error}");
    fs::remove_file(&other).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    token(store.claim(&claim("a")).await.unwrap());
}

#[tokio::test]
async fn a_link_in_the_directories_is_followed() {
    let place = Place::new();
    let (real, link) = (place.path().with_file_name("real"), place.path().with_file_name("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    begin(&Sqlite::open(link.join("locks.db"), Settings::new()).unwrap()).await.unwrap();
    assert!(real.join("locks.db").exists());
}

#[tokio::test]
async fn a_directory_that_everybody_may_write_needs_the_sticky_bit() {
    let place = Place::new();
    let directory = place.path().with_file_name("open");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let error = refusal(&directory.join("locks.db")).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("chmod +t"), "{error}");

    fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).unwrap();
    begin(&Sqlite::open(directory.join("locks.db"), Settings::new()).unwrap()).await.unwrap();
}

#[tokio::test]
async fn info_lists_the_checked_settings() {
    let place = Place::new();
    let store = place.store(Settings::new().sync(SyncMode::Full)).await;
    let found = |name: &str| {
        let check = store.info().checks.iter().find(|check| check.name == name);
        check.map(|check| (check.found.clone(), check.severity))
    };
    let ok = |found: &str| Some((found.to_owned(), Severity::Ok));
    assert_eq!(found("journal_mode"), ok("wal"));
    assert_eq!(found("synchronous"), ok("full"));
    assert_eq!(found("links"), ok("1"));
    assert_eq!(found("mount point"), ok("no"));
    assert_eq!(found("mode"), ok("0600"));
    for name in ["file system", "owner"] {
        assert_eq!(found(name).unwrap().1, Severity::Ok, "{name}");
    }
}

#[tokio::test]
async fn a_file_that_everybody_may_write_is_a_warning() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o666)).unwrap();
    let store = place.store(Settings::new()).await;
    let is_ours = |check: &&Check| check.severity == Severity::Warning && check.name != "sqlite";
    let warnings: Vec<_> = store.info().checks.iter().filter(is_ours).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!((warnings[0].name.as_str(), warnings[0].found.as_str()), ("mode", "0666"));
}

#[tokio::test]
async fn a_client_logs_a_warning_once_although_the_file_is_replaced() {
    // Other tests of this program log too, but not about this mode.
    let (warnings, mode) = (Warnings::default(), 0o626);
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let place = Place::new();
    let create = || {
        fs::write(place.path(), "").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    create();
    let store = place.store(Settings::new()).await;
    token(store.claim(&claim("a")).await.unwrap());
    assert_eq!(warnings.about("0626"), 1);
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(place.path().with_file_name(format!("locks.db{suffix}"))).unwrap();
    }
    create();
    token(store.claim(&claim("a")).await.unwrap());
    assert_eq!(warnings.about("0626"), 1, "the same client was warned again");
    place.store(Settings::new()).await;
    assert_eq!(warnings.about("0626"), 2, "another client was not warned");
}

#[tokio::test]
async fn a_directory_in_the_place_of_the_file_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    assert_eq!(refusal(&place.path()).await.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_file_in_the_place_of_the_directory_is_invalid() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    assert_eq!(refusal(&place.path().join("locks.db")).await.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn the_database_of_another_program_is_left_alone() {
    let place = Place::new();
    write_database(&place.path(), "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
    let before = fs::read(place.path()).unwrap();
    let error = refusal(&place.path()).await;
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("another path"), "{error}");
    assert_eq!(fs::read(place.path()).unwrap(), before);
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let place = Place::new();
    drop(place.store(Settings::new()).await);
    write_database(&place.path(), "PRAGMA user_version = 1000");
    let error = refusal(&place.path()).await;
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("newer release"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_alone() {
    let place = Place::new();
    let text = "dear diary, ".repeat(1000);
    fs::write(place.path(), &text).unwrap();
    assert_eq!(refusal(&place.path()).await.kind(), ErrorKind::Conflict);
    assert_eq!(fs::read_to_string(place.path()).unwrap(), text);
}

#[tokio::test]
async fn a_store_that_could_not_be_opened_can_be_used_once_the_cause_is_gone() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    let store = Sqlite::open(place.path(), Settings::new()).unwrap();
    begin(&store).await.unwrap_err();
    fs::remove_dir(place.path()).unwrap();
    begin(&store).await.unwrap();
}

#[tokio::test]
async fn a_hold_in_a_deleted_file_is_gone_and_not_beside_the_holds_of_the_next() {
    let place = Place::new();
    let (old, holder) = (place.store(Settings::new()).await, claim("a"));
    token(old.claim(&holder).await.unwrap());
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(place.path().with_file_name(format!("locks.db{suffix}"))).unwrap();
    }
    let new = place.store(Settings::new()).await;
    token(new.claim(&claim("a")).await.unwrap());
    assert_eq!(old.renew(&[holder]).await.unwrap(), [Answer::Gone]);
    assert!(matches!(old.claim(&claim("a")).await.unwrap(), Answer::Waiting(_)));
}

#[tokio::test]
async fn the_log_stays_short_however_much_is_written() {
    for sync in [SyncMode::Normal, SyncMode::Full] {
        let place = Place::new();
        let store = place.store(Settings::new().sync(sync)).await;
        let log = place.path().with_file_name("locks.db-wal");
        let mut longest = 0;
        for _ in 0..3_000 {
            let claim = claim("a");
            store.claim(&claim).await.unwrap();
            store.release(&claim, None).await.unwrap();
            longest = longest.max(fs::metadata(&log).unwrap().len());
        }
        // 6,000 commits of at least one page are 12 MB.
        assert!(longest < 8 << 20, "the log has {longest} bytes");
    }
}
