//! Names: any UTF-8, never truncated, never colliding, shown as they were given.

use std::collections::HashSet;

use leasehold_core::{Capability, Key};

use crate::case::cases;
use crate::fixture::RawState;
use crate::scene::Scene;
use crate::verdict::{Expect, Verdict};

cases!("names":
    odd_names_are_locks_of_their_own,
    long_names_are_told_apart_to_the_last_byte,
    odd_names_are_shown_as_they_were_given,
    odd_labels_are_shown_as_they_were_given,
    names_leave_nothing_behind,
);

/// Pairs and families that some store, somewhere, folds together or cannot write.
const ODD: &[&str] = &[
    "a",
    "A",
    "\u{e1}",
    "a\u{301}",
    " ",
    "  ",
    "a ",
    " a",
    "\0",
    "a\0",
    "a\0b",
    "a\nb",
    "a\r\nb",
    "a\tb",
    "\u{7f}",
    "/",
    "//",
    "a/",
    "/a",
    "a//b",
    ".",
    "..",
    "./a",
    "../a",
    "{a}b",
    "{",
    "}",
    "{}",
    "{a}",
    "*",
    "?",
    "[a]",
    "\\",
    "\\0",
    "%",
    "%00",
    "%2f",
    "a%2Fb",
    "a/b",
    "'",
    "\"",
    "';--",
    "`",
    "$1",
    ":1",
    "@",
    "#",
    "&",
    "a:b",
    "a=b",
    "\u{fffe}",
    "\u{feff}a",
    "\u{200b}",
    "\u{202e}",
    "\u{1f512}",
    "\u{df}",
    "ss",
    "\u{130}",
    "i",
    "I",
    "\u{131}",
    "\u{fb01}",
    "fi",
    "NULL",
    "null",
    "0",
    "00",
    "-0",
    "1e1",
    "10",
];

fn odd() -> Verdict<Vec<Key>> {
    ODD.iter().map(|name| Ok(Key::new(name)?)).collect()
}

/// Takes every name, which none but its own claim may prevent, and gives all back.
async fn take_all(scene: &Scene, keys: &[Key]) -> Verdict {
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "the case names one key twice");
    let mut claims = Vec::new();
    for key in keys {
        let claim = scene.attempt(key, 1, 1)?;
        let answer = scene.ask(&claim).await?;
        assert!(matches!(answer, leasehold_core::Answer::Granted(_)), "{key:?} collides: {answer:?}");
        claims.push(claim);
    }
    for claim in &claims {
        scene.release(claim).await?;
    }
    Ok(())
}

async fn odd_names_are_locks_of_their_own(scene: Scene) -> Verdict {
    take_all(&scene, &odd()?).await
}

async fn long_names_are_told_apart_to_the_last_byte(scene: Scene) -> Verdict {
    let mut keys = Vec::new();
    for length in [64, 65, 128, 250, 251, 255, 256, 511, 512, 767, 768, Key::MAX] {
        let stem = "x".repeat(length - 1);
        for last in ["a", "b", "B"] {
            keys.push(Key::new(format!("{stem}{last}"))?);
        }
    }
    // Four bytes each: what is short in characters is long in bytes.
    keys.push(Key::new("\u{1f512}".repeat(Key::MAX / 4))?);
    keys.push(Key::new("\u{1f512}".repeat(Key::MAX / 4 - 1))?);
    take_all(&scene, &keys).await
}

async fn odd_names_are_shown_as_they_were_given(scene: Scene) -> Verdict {
    for key in odd()? {
        let claim = scene.claim(&key, 1, 1)?;
        scene.ask(&claim).await?.granted()?;
        let seen = scene.inspect(&key).await?.expect("it is held");
        assert_eq!(seen.key, key);
        if scene.info().can(Capability::List) {
            let page = scene.store.list(key.as_str(), None).await?;
            assert!(page.resources.iter().any(|seen| seen.key == key), "{key:?} is not listed");
        }
        scene.release(&claim).await?;
    }
    Ok(())
}

async fn odd_labels_are_shown_as_they_were_given(scene: Scene) -> Verdict {
    for label in ODD {
        let mut claim = scene.claim(&scene.key(), 1, 1)?;
        claim.label = (*label).into();
        scene.ask(&claim).await?.granted()?;
        assert_eq!(scene.holders(&claim.key).await?[0].label, *label);
        scene.release(&claim).await?;
    }
    Ok(())
}

async fn names_leave_nothing_behind(scene: Scene) -> Verdict {
    let keys = odd()?;
    take_all(&scene, &keys).await?;
    for key in &keys {
        assert_eq!(scene.raw(key).await?, RawState::default(), "{key:?}");
    }
    Ok(())
}
