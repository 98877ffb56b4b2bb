//! Real faults against the typed stack: `RunLog` and `State` on a store in a file. `PITON_TEST` chooses
//! how much: `quick`, `standard` (the default) or `full`. Each test prints its counts, and each has a
//! negative control: the same check must catch a program that is broken on purpose.

mod failures;
mod kills;
mod power;
pub(crate) mod rivals;
pub(crate) mod saver;

use piton_testing::level;
pub(crate) use piton_testing::level::by_level;

/// Every choice in these tests comes from here.
pub(crate) const SEED: u64 = 20_261_115;

/// At most `count` of `all`.
pub(crate) fn sample<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    level::sample(all, count, SEED)
}
