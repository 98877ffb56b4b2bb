//! Ages, times and sizes as people read them.

use std::time::Duration;

/// How long ago, as people say it.
pub fn age(age: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match age.as_secs() {
        0 => "just now".to_owned(),
        seconds if seconds < MINUTE => format!("{seconds} s ago"),
        seconds if seconds < HOUR => format!("{} min ago", seconds / MINUTE),
        seconds if seconds < 2 * DAY => format!("{} h ago", seconds / HOUR),
        seconds if seconds < 60 * DAY => format!("{} days ago", seconds / DAY),
        seconds if seconds < 730 * DAY => format!("{} months ago", seconds / (30 * DAY)),
        seconds => format!("{} years ago", seconds / (365 * DAY)),
    }
}

/// How long something took, as people say it.
pub fn took(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_millis()) {
        (0, millis) => format!("{millis} ms"),
        (seconds @ 1..10, millis) => format!("{seconds}.{} s", millis / 100),
        (seconds @ 10..60, _) => format!("{seconds} s"),
        (seconds @ 60..3600, _) => format!("{} min {} s", seconds / 60, seconds % 60),
        (seconds, _) => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A long time, as people say it.
pub fn span(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    let seconds = time.as_secs();
    let (unit, name) =
        UNITS.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit)).unwrap_or((1, "second"));
    count(usize::try_from(seconds / unit).unwrap_or(usize::MAX), name)
}

/// So many things, as people say it.
pub fn count(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// A command as it is typed into a shell.
pub fn typed(words: &[&str]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./@=:".contains(c);
    let words = words.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => (*word).to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A number of bytes, as people say it.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return count(usize::try_from(bytes).unwrap_or_default(), "byte");
    }
    let mut unit = 0;
    // In tenths of a unit, rounded to the nearest.
    let mut tenths = bytes.saturating_add(50) / 100;
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        tenths = (tenths + 500) / 1000;
        unit += 1;
    }
    if tenths < 100 {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{} {}", (tenths + 5) / 10, UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        for (seconds, expected) in [
            (0, "just now"),
            (59, "59 s ago"),
            (180, "3 min ago"),
            (7200, "2 h ago"),
            (47 * 3600, "47 h ago"),
            (3 * 86400, "3 days ago"),
            (90 * 86400, "3 months ago"),
            (800 * 86400, "2 years ago"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn durations() {
        for (millis, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1999, "1.9 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (7_265_000, "2 h 1 min"),
            (1_000_000_000, "277 h 46 min"),
        ] {
            assert_eq!(took(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn spans() {
        for (seconds, expected) in
            [(0, "0 seconds"), (1, "1 second"), (90, "90 seconds"), (7200, "2 hours"), (86400 * 30, "30 days")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn sizes() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1000, "1.0 KB"),
            (36_864, "37 KB"),
            (999_999, "1.0 MB"),
            (5_200_000, "5.2 MB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(size(bytes), expected, "{bytes}");
        }
    }
}
