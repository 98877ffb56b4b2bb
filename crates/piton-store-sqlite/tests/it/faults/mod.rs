//! Real faults against the typed stack: `RunLog` and `State` on a store in a file. `PITON_TEST` chooses
//! how much: `quick`, `standard` (the default) or `full`. Each test prints its counts, and each has a
//! negative control: the same check must catch a program that is broken on purpose.

mod failures;
mod kills;
mod power;
pub(crate) mod rivals;
pub(crate) mod saver;

use piton_testing::SeededRandom;

/// Every choice in these tests comes from here.
pub(crate) const SEED: u64 = 20_261_115;

/// A number for each level of thoroughness.
pub(crate) fn by_level<T>(quick: T, standard: T, full: T) -> T {
    match std::env::var("PITON_TEST").as_deref() {
        Ok("quick") => quick,
        Ok("full") => full,
        Err(_) | Ok("standard") => standard,
        Ok(other) => panic!("PITON_TEST is quick, standard or full, not {other}"),
    }
}

/// At most `count` of `all`, spread over the whole: one at random out of each of `count` stretches.
pub(crate) fn sample<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    if all.len() <= count {
        return all.to_vec();
    }
    let random = SeededRandom::new(SEED);
    let pick = |n: usize| {
        let (from, to) = (n * all.len() / count, (n + 1) * all.len() / count);
        all[from + random.below(to - from)].clone()
    };
    (0..count).map(pick).collect()
}
