//! Which versions of SQLite are safe to use.

/// Whether this version, as `SQLITE_VERSION_NUMBER` gives it, is free of the WAL-reset bug: a
/// checkpoint that races with a writer could lose commits before 3.51.3. It was also mended in 3.50.7
/// and 3.44.6.
pub(crate) fn is_safe(number: i32) -> bool {
    matches!(number, 3_044_006..3_045_000 | 3_050_007..3_051_000 | 3_051_003..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_wal_reset_bug_are_refused() {
        for bad in [0, 3_007_000, 3_044_005, 3_045_000, 3_049_002, 3_050_006, 3_051_000, 3_051_002] {
            assert!(!is_safe(bad), "{bad}");
        }
        for good in [3_044_006, 3_044_999, 3_050_007, 3_051_003, 3_052_000, 3_054_001, 4_000_000] {
            assert!(is_safe(good), "{good}");
        }
        assert!(is_safe(rusqlite::version_number()), "the one that we ship");
    }
}
