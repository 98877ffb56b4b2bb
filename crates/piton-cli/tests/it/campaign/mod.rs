//! An adversary's campaign against the binary: kills, races with writers, hostile clones, bundles, documents and hooks.
//! What must hold is judged by plain looks at files, never by Piton's own code.
//!
//! Each section plays rounds. A round has a seed of its own, which a finding names: `PITON_SEED` set to it plays that round
//! first. As a test a section plays a handful; `PITON_CAMPAIGN=3600` lets all six take that many seconds together, one
//! after the other with `--test-threads=1`. `PITON_BINARY` names another binary to be tried. Each section has a control: a
//! Piton with a flaw, which the same round must find.

#![expect(clippy::print_stdout, reason = "what was done is counted for the reader of the test")]

mod bundles;
mod clones;
mod documents;
mod hooks;
mod kills;
mod player;
mod races;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use piton_testing::SeededRandom;
use piton_testing::level::by_level;

/// How many sections share the time.
const SECTIONS: u32 = 6;

/// How often what was done.
#[derive(Debug, Default)]
struct Counts(Mutex<BTreeMap<String, usize>>);

impl Counts {
    fn add(&self, what: impl Into<String>) {
        self.add_many(what, 1);
    }

    /// The largest that was met.
    fn most(&self, what: impl Into<String>, value: usize) {
        let mut counts = self.0.lock().unwrap();
        let most = counts.entry(what.into()).or_default();
        *most = value.max(*most);
    }

    fn add_many(&self, what: impl Into<String>, count: usize) {
        *self.0.lock().unwrap().entry(what.into()).or_default() += count;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock().unwrap();
        counts.iter().try_for_each(|(what, count)| write!(f, "\n  {count:>7} {what}"))
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

/// Plays rounds of a section, prints what was done, and fails if a round found something.
fn play(section: &str, rounds: (u64, u64), round: impl Fn(&SeededRandom, &Counts)) {
    let first = variable("PITON_SEED").unwrap_or(20_261_118);
    let hour = by_level(None, None, Some(3600));
    let time = variable("PITON_CAMPAIGN").or(hour).map(|all| Duration::from_secs(all) / SECTIONS);
    let (begin, counts) = (Instant::now(), Counts::default());
    let goes_on = |played: u64| {
        time.map_or(played < by_level(rounds.0, rounds.1, rounds.1), |time| played == 0 || begin.elapsed() < time)
    };
    let mut findings = Vec::new();
    for seed in (first..).take_while(|seed| goes_on(seed - first)) {
        let played = catch_unwind(AssertUnwindSafe(|| round(&SeededRandom::new(seed), &counts)));
        if played.is_err() {
            println!("{section}: a finding with PITON_SEED={seed}");
            findings.push(seed);
        }
        counts.add("rounds");
    }
    println!("{section}: {} s from seed {first}, {} findings{counts}", begin.elapsed().as_secs(), findings.len());
    assert!(findings.is_empty(), "{section}: findings with the seeds {findings:?}");
}

/// The control of a section: among rounds with a flaw one must find it, and say so in one of these words.
fn finds(rounds: u64, words: &[&str], round: impl Fn(&SeededRandom, &Counts)) {
    let found = |seed| {
        let played = catch_unwind(AssertUnwindSafe(|| round(&SeededRandom::new(seed), &Counts::default())));
        let said = played.err().and_then(|cause| cause.downcast::<String>().ok());
        said.is_some_and(|said| words.iter().any(|words| said.contains(words)))
    };
    assert!((0..rounds).any(found), "{rounds} rounds didn't find a flaw that was made for them");
}
