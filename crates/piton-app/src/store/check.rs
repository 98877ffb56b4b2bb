//! Finding damage.

/// Where the status of a folder finds what the last check counted.
pub const SIZES: &str = "metrics/sizes";
