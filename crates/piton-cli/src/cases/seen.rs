//! What was told of a case while it was run, killed and gone on with.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use piton::Event;

/// What somebody who listened has heard, over several attempts at a run.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// Finished nodes that didn't run again.
    skipped: u64,
    /// Steps that were told as finished, in this attempt and in those before.
    finished: BTreeSet<String>,
    before: BTreeSet<String>,
    /// Steps that began although an attempt before had told that they finished.
    again: BTreeSet<String>,
    /// Each is said on the standard output, at once.
    is_aloud: bool,
}

impl Seen {
    /// Says what finished on the standard output too: for whoever listens to a process that is about to die.
    pub(crate) fn aloud() -> Self {
        Self(Mutex::new(Heard { is_aloud: true, ..Heard::default() }))
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another attempt begins.
    pub(crate) fn begin(&self) {
        let heard = &mut *self.heard();
        heard.before.append(&mut heard.finished);
    }

    /// A step was told as finished.
    pub(crate) fn finished(&self, step: &str) {
        self.heard().finished.insert(step.to_owned());
    }

    /// Takes an event in.
    pub(crate) fn hear(&self, event: &Event) {
        let heard = &mut *self.heard();
        match event {
            Event::StepSkipped { .. } => heard.skipped += 1,
            Event::StepStarted { step, .. } if heard.before.contains(step.as_str()) => {
                heard.again.insert(step.to_string());
            }
            Event::StepFinished { step, .. } => {
                if heard.is_aloud {
                    let mut out = std::io::stdout().lock();
                    // Whoever should have listened is gone.
                    let _ = writeln!(out, "{step}").and_then(|()| out.flush());
                }
                heard.finished.insert(step.to_string());
            }
            _ => {}
        }
    }

    /// How many finished nodes didn't run again.
    pub(crate) fn skipped(&self) -> u64 {
        self.heard().skipped
    }

    /// The steps that ran again although somebody was told that they had finished.
    pub(crate) fn again(&self) -> Vec<String> {
        self.heard().again.iter().cloned().collect()
    }
}
