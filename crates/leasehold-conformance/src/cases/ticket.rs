//! A lock on its way to another process: the old guard ends, the new one begins, nobody gets in between.

use std::future::poll_fn;
use std::task::Poll;

use leasehold_core::layers::{Fault, Faults, Reply, Verb};
use leasehold_core::{Client, ErrorKind, Feature, Key, Loss, Options, Owner, Released, Ticket};

use crate::case::cases;
use crate::scene::{LONG, Scene, soon};
use crate::verdict::{Stop, Verdict};

cases!("ticket":
    who_adopts_has_a_larger_token_and_the_old_guard_is_over,
    the_lock_is_held_on_its_way,
    a_waiter_does_not_get_in_between,
    the_second_adopter_gets_none,
    of_racing_adopters_one_gets_it,
    an_adoption_whose_reply_was_lost_succeeds,
    a_ticket_whose_lease_has_ended_gives_none,
    what_was_adopted_is_renewed,
    permits_are_handed_over_with_their_number,
    a_lost_guard_cannot_be_handed_over,
    a_guard_that_is_held_twice_cannot_be_handed_over,
    a_ticket_can_be_written_down_and_read_back,
    what_is_not_a_ticket_is_refused,
    debug_hides_the_secret,
    a_dropped_adoption_leaves_no_ghost,
);

/// Skips the case on stores without hand-over; otherwise the giver and the taker.
async fn two(scene: &Scene) -> Verdict<(Client, Client)> {
    scene.needs_feature(Feature::HandOver)?;
    Ok((scene.fixture.connect().await?, scene.fixture.connect().await?))
}

/// A ticket of a mutex whose lease does not end during the case.
async fn ticket(giver: &Client, key: &Key) -> Verdict<Ticket> {
    let lock = giver.mutex(key.as_str()).with(Options::new().lease(LONG.min(giver.info().max_lease)));
    Ok(lock.acquire().await?.hand_over().await?)
}

async fn who_adopts_has_a_larger_token_and_the_old_guard_is_over(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    let key = scene.key();
    let old = giver.mutex(key.as_str()).acquire().await?;
    let (token, signal) = (old.token(), old.signal());
    let ticket = old.hand_over().await?;
    assert!(signal.is_lost(), "two could believe that they hold");
    let new = taker.adopt(&ticket).await?.expect("nobody was faster");
    assert!(new.is_valid() && new.token() > token, "{} after {token}", new.token());
    assert_eq!(new.key(), &key);
    assert_eq!(scene.holders(&key).await?[0].token, new.token());
    // The giver, at its end, takes nothing along.
    giver.close().await?;
    assert_eq!(scene.holders(&key).await?[0].token, new.token());
    new.release().await?;
    // The giver's id is refused for a while: that is no claim.
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn the_lock_is_held_on_its_way(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    let key = scene.key();
    let _ticket = ticket(&giver, &key).await?;
    assert!(taker.mutex(key.as_str()).try_acquire().await?.is_none());
    giver.close().await?;
    assert!(taker.mutex(key.as_str()).try_acquire().await?.is_none(), "it went with its giver");
    Ok(())
}

async fn a_waiter_does_not_get_in_between(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    let key = scene.key();
    let held = giver.mutex(key.as_str()).acquire().await?;
    let lock = scene.fixture.connect().await?.mutex(key.as_str());
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_waiting(&key, 1).await?;
    let ticket = held.hand_over().await?;
    let new = taker.adopt(&ticket).await?.expect("nobody was faster");
    let now = scene.raw(&key).await?;
    assert_eq!((now.holders, now.waiters, waiting.is_finished()), (1, 1, false));
    let token = new.token();
    new.release().await?;
    assert!(soon(waiting).await?.map_err(Stop::fail)??.token() > token);
    Ok(())
}

async fn the_second_adopter_gets_none(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    let key = scene.key();
    let ticket = ticket(&giver, &key).await?;
    let first = taker.adopt(&ticket).await?.expect("nobody was faster");
    assert!(taker.adopt(&ticket).await?.is_none());
    assert!(giver.adopt(&ticket).await?.is_none());
    assert!(first.is_valid());
    assert_eq!(scene.holders(&key).await?[0].token, first.token());
    Ok(())
}

async fn of_racing_adopters_one_gets_it(scene: Scene) -> Verdict {
    let (giver, _) = two(&scene).await?;
    let key = scene.key();
    let ticket = ticket(&giver, &key).await?;
    let mut racers = Vec::new();
    for _ in 0..6 {
        let (client, ticket) = (scene.fixture.connect().await?, ticket.clone());
        racers.push(tokio::spawn(async move { client.adopt(&ticket).await }));
    }
    let mut winners = Vec::new();
    for racer in racers {
        winners.extend(soon(racer).await?.map_err(Stop::fail)??);
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(scene.holders(&key).await?[0].token, winners[0].token());
    Ok(())
}

async fn an_adoption_whose_reply_was_lost_succeeds(scene: Scene) -> Verdict {
    let (giver, _) = two(&scene).await?;
    let key = scene.key();
    let ticket = ticket(&giver, &key).await?;
    let faults = Faults::new(scene.fixture.store().await?);
    faults.once(Verb::Amend, Fault { reply: Reply::Lost, ..Fault::default() });
    let taker = Client::new(faults).await?;
    let adopted = soon(taker.adopt(&ticket)).await??.expect("nobody was faster");
    assert!(adopted.is_valid());
    assert_eq!(scene.holders(&key).await?[0].token, adopted.token());
    assert_eq!(adopted.release().await?, Released::Held);
    Ok(())
}

async fn a_ticket_whose_lease_has_ended_gives_none(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    let key = scene.key();
    let held = giver.mutex(key.as_str()).with(Options::new().lease(scene.lease())).acquire().await?;
    let ticket = held.hand_over().await?;
    scene.until_free(&key).await?;
    assert!(taker.adopt(&ticket).await?.is_none());
    let next = giver.mutex(key.as_str()).acquire().await?;
    assert!(taker.adopt(&ticket).await?.is_none());
    assert!(next.is_valid());
    Ok(())
}

async fn what_was_adopted_is_renewed(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    let key = scene.key();
    let lease = scene.lease();
    let held = giver.mutex(key.as_str()).with(Options::new().lease(lease)).acquire().await?;
    let new = taker.adopt(&held.hand_over().await?).await?.expect("nobody was faster");
    let lost = tokio::time::timeout(lease * 3, new.lost()).await;
    assert!(lost.is_err(), "lost: {lost:?}");
    assert_eq!(scene.holders(&key).await?[0].token, new.token());
    Ok(())
}

async fn permits_are_handed_over_with_their_number(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    scene.needs_feature(Feature::Semaphore)?;
    let key = scene.key();
    let ticket = giver.semaphore(key.as_str(), 5).permits(3).acquire().await?.hand_over().await?;
    let new = taker.adopt(&ticket).await?.expect("nobody was faster");
    assert_eq!(new.units(), 3);
    assert_eq!(scene.raw(&key).await?.units, 3);
    Ok(())
}

async fn a_lost_guard_cannot_be_handed_over(scene: Scene) -> Verdict {
    let (giver, _) = two(&scene).await?;
    let key = scene.key();
    let held = giver.mutex(key.as_str()).with(Options::new().fixed(scene.lease())).acquire().await?;
    assert_eq!(soon(held.lost()).await?, Loss::Expired);
    let error = held.hand_over().await.expect_err("there is nothing to hand over");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    Ok(())
}

async fn a_guard_that_is_held_twice_cannot_be_handed_over(scene: Scene) -> Verdict {
    let (giver, _) = two(&scene).await?;
    let key = scene.key();
    let lock = giver.mutex(key.as_str()).with(Options::new().owner(&Owner::new()));
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    let error = inner.hand_over().await.expect_err("its owner has another guard");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(outer.is_valid());
    assert_eq!(scene.holders(&key).await?[0].token, outer.token());
    Ok(())
}

async fn a_ticket_can_be_written_down_and_read_back(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    let unique = scene.key();
    let long = "\u{1f512}".repeat(100);
    for odd in ["a.b.c", " ", "\n\t\0", "'$(x)\"\\;&", "straße/日本", "leasehold-ticket-1.1.1", &long] {
        let key = Key::new(format!("{odd}{unique}{odd}"))?;
        let ticket = ticket(&giver, &key).await?;
        let written = ticket.to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        assert!(written.chars().all(plain), "a shell would not leave it alone: {written}");
        let read: Ticket = written.parse()?;
        assert_eq!((&read, read.key()), (&ticket, &key));
        let adopted = taker.adopt(&read).await?.expect("nobody was faster");
        assert_eq!(adopted.key(), &key);
        adopted.release().await?;
    }
    Ok(())
}

async fn what_is_not_a_ticket_is_refused(scene: Scene) -> Verdict {
    let (giver, _) = two(&scene).await?;
    let written = ticket(&giver, &scene.key()).await?.to_string();
    let cut = &written[..written.len() - 1];
    let longer = format!("{written}.00");
    let other = written.replacen("ticket-1", "ticket-2", 1);
    for bad in ["", "x", "leasehold-ticket-1", cut, &longer, &other] {
        let error = bad.parse::<Ticket>().expect_err("it is no ticket");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(
            bad.len() < 2 || !error.to_string().contains(bad),
            "a mistyped ticket is still nearly a secret"
        );
    }
    Ok(())
}

async fn debug_hides_the_secret(scene: Scene) -> Verdict {
    let (giver, _) = two(&scene).await?;
    let ticket = ticket(&giver, &scene.key()).await?;
    let written = ticket.to_string();
    let secret = written.split('.').find(|part| part.len() == 32).expect("a ticket has 128 secret bits");
    let shown = format!("{ticket:?} {ticket:#?}");
    assert!(shown.contains("Ticket") && !shown.contains(secret), "{shown}");
    Ok(())
}

async fn a_dropped_adoption_leaves_no_ghost(scene: Scene) -> Verdict {
    let (giver, taker) = two(&scene).await?;
    for polls in 0..8 {
        let key = scene.key();
        let ticket = ticket(&giver, &key).await?;
        {
            let mut adoption = Box::pin(taker.adopt(&ticket));
            for _ in 0..polls {
                if poll_fn(|cx| Poll::Ready(adoption.as_mut().poll(cx).is_ready())).await {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // It came too early, and the ticket is still good, or it took the lock and gave it back: long before
        // the lease ends nobody may have it.
        if let Some(adopted) = giver.adopt(&ticket).await? {
            adopted.release().await?;
        }
        scene.until(&key, |seen| seen.is_none_or(|seen| seen.holders.is_empty())).await?;
    }
    Ok(())
}
