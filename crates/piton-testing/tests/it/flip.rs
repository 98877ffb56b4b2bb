//! Damaged bytes.

use std::fs;
use std::path::Path;

use piton_testing::flip::{Change, Outcome, Sweep, Tally};
use piton_testing::process::run;
use piton_testing::scratch::Scratch;

use crate::journal::{self, Flaw, RECORD};
use crate::victim;

const COUNT: usize = 3;

fn sweep(flaw: Flaw, sweep: &Sweep) -> Tally {
    let dir = Scratch::in_memory();
    assert!(run(&mut victim(flaw, dir.path(), COUNT as u64)).success());
    let before = fs::read(dir.join("journal")).unwrap();
    let tally = sweep.run(dir.path(), |copy, _| {
        let outcome = judge(copy, flaw);
        // What a check may do to its copy: the next mutation must not see it.
        fs::write(copy.join("litter"), "left behind").unwrap();
        fs::remove_file(copy.join("journal")).unwrap();
        outcome
    });
    assert_eq!(fs::read(dir.join("journal")).unwrap(), before, "the original is untouched");
    println!("{flaw:?}: {}", tally.to_string().lines().next().unwrap());
    tally
}

fn judge(dir: &Path, flaw: Flaw) -> Outcome {
    assert!(!dir.join("litter").exists(), "the copy was not put back");
    match journal::read(dir, flaw) {
        Err(error) => Outcome::Detected(error),
        Ok(records) => match (0..).zip(&records).find(|(number, bytes)| **bytes != journal::record(*number)) {
            Some((number, _)) => Outcome::Silent(format!("record {number} is wrong")),
            None if records.len() < COUNT => Outcome::Lost(format!("{} records of {COUNT}", records.len())),
            None => Outcome::Same,
        },
    }
}

/// The damaged last record can't be told from a torn one; nothing else passes.
#[test]
fn nothing_is_silent_in_the_good_journal() {
    let tally = sweep(Flaw::None, &Sweep::default());
    assert_eq!((tally.total(), tally.silent, tally.same), (16 + COUNT * RECORD, 0, 0), "{tally}");
    assert_eq!((tally.lost, tally.detected), (RECORD, 16 + (COUNT - 1) * RECORD), "{tally}");
}

#[test]
fn missing_and_swapped_bytes_are_tried_too() {
    let changes = [Change::Zero, Change::SwapWithNext, Change::Drop, Change::Cut];
    let tally = sweep(Flaw::None, &Sweep { stride: 7, ..Sweep::every_byte(&changes) });
    assert_eq!(tally.silent, 0, "{tally}");
    assert!(tally.detected > 300 && tally.lost > 300, "{tally}");
}

#[test]
fn flips_find_a_missing_checksum() {
    let tally = sweep(Flaw::NoChecksum, &Sweep::default());
    assert_eq!((tally.silent, tally.detected), (COUNT * RECORD, 16), "{tally}");
}

#[test]
#[should_panic(expected = "journal at 0: Xor(1): the check panicked: ouch")]
fn a_check_that_panics_names_the_mutation() {
    let dir = Scratch::in_memory();
    fs::write(dir.join("journal"), "x").unwrap();
    Sweep::default().run(dir.path(), |_, _| panic!("ouch"));
}
