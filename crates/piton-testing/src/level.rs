//! How much a fault test does: `PITON_TEST` is `quick`, `standard` (the default) or `full`.

use crate::SeededRandom;

/// A number for each level of thoroughness.
///
/// # Panics
/// If `PITON_TEST` is something else.
pub fn by_level<T>(quick: T, standard: T, full: T) -> T {
    match std::env::var("PITON_TEST").as_deref() {
        Ok("quick") => quick,
        Ok("full") => full,
        Err(_) | Ok("standard") => standard,
        Ok(other) => panic!("PITON_TEST is quick, standard or full, not {other}"),
    }
}

/// At most `count` of `all`, spread over the whole: one at random out of each of `count` stretches.
pub fn sample<T: Clone>(all: &[T], count: usize, seed: u64) -> Vec<T> {
    if all.len() <= count {
        return all.to_vec();
    }
    let random = SeededRandom::new(seed);
    let pick = |n: usize| {
        let (from, to) = (n * all.len() / count, (n + 1) * all.len() / count);
        all[from + random.below(to - from)].clone()
    };
    (0..count).map(pick).collect()
}
