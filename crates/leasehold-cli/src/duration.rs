//! Durations as people write them.

use std::time::Duration;

/// `90s`, `1h 30m`, `250ms`, or plain seconds: `90`, `0.5`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let plain =
        text.parse::<f64>().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit() || c == '.'));
    if let Some(seconds) = plain {
        return Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text} seconds are too many"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}: write it like 10s, 1h 30m or 250ms"))
}

/// A duration that must not be zero.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("zero is too short: use at least 1ms".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood() {
        for (text, millis) in
            [("10s", 10_000), ("1h 30m", 5_400_000), ("250ms", 250), ("10", 10_000), ("0.5", 500), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn the_rest_is_refused_with_an_example() {
        for text in ["", "ten", "-1", "-1s", "10x", "inf", "NaN", "1e999"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("soon").unwrap_err().contains("like 10s"));
        assert!(parse_positive("0s").unwrap_err().contains("at least"));
    }
}
