//! What `cargo xtask test` was asked to do.

use crate::selection::Selection;
use crate::tiers::Tier;

/// The words after `cargo xtask test`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) tier: Tier,
    pub(crate) selection: Selection,
    /// Keep the results that an interrupted run of the same commit already has.
    pub(crate) resume: bool,
    /// Keep the results of all programs that passed in the last full run, at whatever commit.
    pub(crate) failed: bool,
    /// Servers that may be missing.
    pub(crate) allow_missing: Vec<String>,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match (*word, word.split_once('=')) {
                ("--quick", _) => options.set_tier(Tier::Quick)?,
                ("--full", _) => options.set_tier(Tier::Full)?,
                ("--resume", _) => options.resume = true,
                ("--failed", _) => options.failed = true,
                ("--allow-missing", _) => {
                    let name = words.next().ok_or("--allow-missing needs the name of a server")?;
                    options.allow_missing.push((*name).to_owned());
                }
                (_, Some(("--allow-missing", name))) => options.allow_missing.push(name.to_owned()),
                (option, _) if option.starts_with('-') => return Err(format!("unknown option: {option}")),
                (name, _) => options.selection.add(name)?,
            }
        }
        if (options.resume || options.failed) && options.tier != Tier::Full {
            return Err("--resume and --failed continue a full run: add --full".to_owned());
        }
        Ok(options)
    }

    fn set_tier(&mut self, tier: Tier) -> Result<(), String> {
        if self.tier != Tier::Standard && self.tier != tier {
            return Err("choose one of --quick and --full".to_owned());
        }
        self.tier = tier;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let parsed = Options::parse(&["redis", "--full", "--resume", "--allow-missing", "a"]).unwrap();
        let mut selection = Selection::default();
        selection.add("redis").unwrap();
        let allow_missing = vec!["a".to_owned()];
        let expected =
            Options { tier: Tier::Full, selection, resume: true, allow_missing, ..Options::default() };
        assert_eq!(parsed, expected);
        assert_eq!(Options::parse(&["--allow-missing=b"]).unwrap().allow_missing, ["b"]);
    }

    #[test]
    fn contradictions_and_unknown_words_are_errors() {
        for words in [
            &["--allow-missing"][..],
            &["--fast"],
            &["--quick", "--full"],
            &["--resume"],
            &["--failed"],
            &["redsi"],
        ] {
            assert!(Options::parse(words).is_err(), "{words:?}");
        }
    }
}
