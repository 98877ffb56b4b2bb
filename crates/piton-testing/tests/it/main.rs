//! The harnesses, tried on a journal with deliberate flaws: each must find the flaws that it is for,
//! and nothing in the good journal.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test itself")]
#![expect(clippy::print_stdout, reason = "each harness prints its counts")]

mod flip;
#[path = "../../victim/journal.rs"]
mod journal;
mod kill;
mod power;
mod process;
mod store;

use std::path::Path;
use std::process::Command;

use journal::Flaw;

/// `journal-victim FLAW DIR COUNT`.
fn victim(flaw: Flaw, dir: &Path, count: u64) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_journal-victim"));
    assert_eq!(Flaw::of_option(flaw.option()), Some(flaw));
    command.arg(flaw.option()).arg(dir).arg(count.to_string());
    command
}

/// What is wrong with the journal in `dir` after a crash, given what had been acknowledged. It may hold
/// one more record than that.
fn verdict(dir: &Path, flaw: Flaw, acknowledged: &[String]) -> Result<(), String> {
    let records = journal::read(dir, flaw)?;
    for (number, bytes) in (0..).zip(&records) {
        if *bytes != journal::record(number) {
            return Err(format!("record {number} is wrong"));
        }
    }
    if records.len() < acknowledged.len() {
        return Err(format!("{} records of {} acknowledged ones", records.len(), acknowledged.len()));
    }
    Ok(())
}
