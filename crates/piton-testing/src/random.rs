//! Chance that repeats: the same seed, the same numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use piton_types::Random;

/// The increment of SplitMix64.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64. Not for secrets; for tests that must be repeatable from the seed that they print.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The sequence that `seed` stands for.
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        let mut word = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0. The bias of the remainder doesn't matter here.
    pub fn below(&self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).expect("a usize has at most 64 bits");
        usize::try_from(self.next_u64() % bound).expect("it is below a usize")
    }

    /// `true` once in `of` times.
    pub fn one_in(&self, of: usize) -> bool {
        self.below(of) == 0
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let draw = |seed| {
            let mut bytes = [0; 13];
            SeededRandom::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    /// The reference values of SplitMix64, so that a printed seed means the same for ever.
    #[test]
    fn matches_the_reference() {
        let random = SeededRandom::new(1_234_567);
        assert_eq!([random.next_u64(), random.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn stays_below_its_bound() {
        let random = SeededRandom::new(1);
        let mut seen = [0; 5];
        (0..500).for_each(|_| seen[random.below(5)] += 1);
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
