//! Many readers or one writer.

use std::time::Duration;

use leasehold_core::{Capability, ErrorKind, Feature};

use crate::case::cases;
use crate::scene::{SLACK, Scene};
use crate::verdict::{Stop, Verdict};

cases!("rwlock":
    readers_share,
    a_writer_is_alone,
    a_waiting_writer_is_not_starved_by_later_readers,
    readers_that_wait_together_come_in_together,
    one_upgradable_beside_readers,
    an_upgrade_waits_for_the_readers,
    an_upgrade_goes_before_a_waiting_writer,
    an_upgrade_takes_a_larger_token,
    a_failed_upgrade_gives_the_guard_back,
    an_upgrade_that_ran_out_of_time_still_reads,
    a_dropped_upgrade_frees_the_key,
    downgrading_lets_readers_in_and_no_writer,
    a_writer_can_become_upgradable_and_write_again,
    a_plain_reader_cannot_upgrade_and_is_told_why,
);

/// Waits for a spawned task.
async fn done<T>(task: tokio::task::JoinHandle<leasehold_core::Result<T>>) -> Verdict<T> {
    let joined = tokio::time::timeout(SLACK * 2, task).await.map_err(|_| Stop::fail("still waiting"))?;
    Ok(joined.map_err(Stop::fail)??)
}

async fn readers_share(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::RwLock)?;
    let key = scene.key();
    let (one, two) = (scene.fixture.connect().await?, scene.fixture.connect().await?);
    let first = one.rwlock(key.as_str()).read().acquire().await?;
    let second = two.rwlock(key.as_str()).read().try_acquire().await?.expect("readers share");
    assert!(first.is_valid() && second.is_valid());
    assert_eq!(scene.raw(&key).await?.holders, 2);
    Ok(())
}

async fn a_writer_is_alone(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::RwLock)?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let reader = lock.read().acquire().await?;
    assert!(lock.write().try_acquire().await?.is_none());
    reader.release().await?;
    let writer = lock.write().acquire().await?;
    assert!(lock.read().try_acquire().await?.is_none());
    assert!(lock.write().try_acquire().await?.is_none());
    writer.release().await?;
    Ok(())
}

async fn a_waiting_writer_is_not_starved_by_later_readers(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::RwLock)?;
    scene.needs_order()?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let reader = lock.read().acquire().await?;
    let writing = lock.clone();
    let writer = tokio::spawn(async move { writing.write().acquire().await });
    scene.until_waiting(&key, 1).await?;
    assert!(lock.read().try_acquire().await?.is_none(), "a reader overtook a waiting writer");
    reader.release().await?;
    assert!(done(writer).await?.is_valid());
    Ok(())
}

async fn readers_that_wait_together_come_in_together(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::RwLock)?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let writer = lock.write().acquire().await?;
    let mut readers = Vec::new();
    for waiting in 1..=3 {
        let lock = scene.fixture.connect().await?.rwlock(key.as_str());
        readers.push(tokio::spawn(async move { lock.read().acquire().await }));
        scene.until_waiting(&key, waiting).await?;
    }
    writer.release().await?;
    let mut held = Vec::new();
    for reader in readers {
        held.push(done(reader).await?);
    }
    assert_eq!(scene.raw(&key).await?.holders, 3);
    assert!(held.iter().all(|guard| guard.is_valid()));
    Ok(())
}

async fn one_upgradable_beside_readers(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let lock = scene.fixture.connect().await?.rwlock(scene.key().as_str());
    let _reader = lock.read().acquire().await?;
    let _upgradable = lock.upgradable().acquire().await?;
    let _another = lock.read().try_acquire().await?.expect("readers share with one upgradable");
    assert!(lock.upgradable().try_acquire().await?.is_none(), "two upgradables would wait for each other");
    assert!(lock.write().try_acquire().await?.is_none());
    Ok(())
}

async fn an_upgrade_waits_for_the_readers(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let reader = lock.read().acquire().await?;
    let upgradable = lock.upgradable().acquire().await?;
    let upgrade = tokio::spawn(upgradable.upgrade());
    scene.until_waiting(&key, 1).await?;
    assert!(!upgrade.is_finished());
    reader.release().await?;
    let writer = done(upgrade).await?;
    assert!(writer.is_valid());
    assert!(lock.read().try_acquire().await?.is_none());
    writer.release().await?;
    scene.until_nothing_is_left(&key).await
}

async fn an_upgrade_goes_before_a_waiting_writer(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    scene.needs_order()?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let upgradable = lock.upgradable().acquire().await?;
    let writing = lock.clone();
    let waiting = tokio::spawn(async move { writing.write().acquire().await });
    scene.until_waiting(&key, 1).await?;
    // The writer waits for the upgradable: behind it the upgrade would wait for ever.
    let upgraded = tokio::time::timeout(SLACK, upgradable.upgrade()).await;
    let writer = upgraded.map_err(|_| Stop::fail("the upgrade waits behind the writer"))??;
    assert!(!waiting.is_finished());
    writer.release().await?;
    assert!(done(waiting).await?.is_valid());
    Ok(())
}

async fn an_upgrade_takes_a_larger_token(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let lock = scene.fixture.connect().await?.rwlock(scene.key().as_str());
    let upgradable = lock.upgradable().acquire().await?;
    let reader = lock.read().acquire().await?;
    let between = reader.token();
    reader.release().await?;
    let writer = upgradable.upgrade().await?;
    assert!(writer.token() > between, "{} after {between}", writer.token());
    Ok(())
}

async fn a_failed_upgrade_gives_the_guard_back(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let lock = scene.fixture.connect().await?.rwlock(scene.key().as_str());
    let upgradable = lock.upgradable().acquire().await?;
    let reader = lock.read().acquire().await?;
    let upgradable = upgradable.try_upgrade().await?.expect_err("a reader is there");
    assert!(upgradable.is_valid());
    reader.release().await?;
    assert!(upgradable.try_upgrade().await?.is_ok());
    Ok(())
}

async fn an_upgrade_that_ran_out_of_time_still_reads(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let _reader = lock.read().acquire().await?;
    let upgradable = lock.upgradable().acquire().await?;
    let upgradable =
        upgradable.upgrade_within(Duration::from_millis(400)).await?.expect_err("a reader is there");
    assert!(upgradable.is_valid());
    assert_eq!(scene.raw(&key).await?.waiters, 0, "the wish was left behind");
    let _later = lock.read().try_acquire().await?.expect("readers share with an upgradable");
    Ok(())
}

async fn a_dropped_upgrade_frees_the_key(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let reader = lock.read().acquire().await?;
    let upgradable = lock.upgradable().acquire().await?;
    let upgrade = tokio::spawn(upgradable.upgrade());
    scene.until_waiting(&key, 1).await?;
    upgrade.abort();
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (1, 0)).await?;
    reader.release().await?;
    scene.until_nothing_is_left(&key).await
}

async fn downgrading_lets_readers_in_and_no_writer(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    scene.needs_order()?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let writer = lock.write().acquire().await?;
    let reading = lock.clone();
    let reader = tokio::spawn(async move { reading.read().acquire().await });
    scene.until_waiting(&key, 1).await?;
    let writing = lock.clone();
    let next = tokio::spawn(async move { writing.write().acquire().await });
    scene.until_waiting(&key, 2).await?;
    let downgraded = writer.downgrade().await?;
    let reader = done(reader).await?;
    assert!(downgraded.is_valid() && reader.is_valid());
    assert_eq!(scene.raw(&key).await?.waiters, 1, "the writer must go on waiting");
    assert!(!next.is_finished());
    downgraded.release().await?;
    reader.release().await?;
    assert!(done(next).await?.is_valid());
    Ok(())
}

async fn a_writer_can_become_upgradable_and_write_again(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let lock = scene.fixture.connect().await?.rwlock(scene.key().as_str());
    let upgradable = lock.write().acquire().await?.downgrade_to_upgradable().await?;
    let reader = lock.read().try_acquire().await?.expect("readers share with an upgradable");
    assert!(lock.upgradable().try_acquire().await?.is_none());
    reader.release().await?;
    let writer = upgradable.upgrade().await?;
    assert!(lock.read().try_acquire().await?.is_none());
    writer.release().await?;
    Ok(())
}

async fn a_plain_reader_cannot_upgrade_and_is_told_why(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::RwLock)?;
    let lock = scene.fixture.connect().await?.rwlock(scene.key().as_str());
    let reader = lock.read().acquire().await?;
    let error = reader.upgrade().expect_err("a plain reader cannot upgrade");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("upgradable"), "{error}");
    assert!(reader.is_valid());
    Ok(())
}
