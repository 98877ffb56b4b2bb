//! What was told of a case while it was run, killed and gone on with.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use piton_types::Event;

/// What a listener has heard, over several attempts at a run.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Heard>);

/// Is told a step that finished.
type Tell = Box<dyn Fn(&str) + Send>;

#[derive(Default)]
struct Heard {
    /// Finished nodes that didn't run again.
    skipped: u64,
    /// Steps that were told as finished, in this attempt and in those before.
    finished: BTreeSet<String>,
    before: BTreeSet<String>,
    /// Steps that began although an attempt before had told that they finished.
    again: BTreeSet<String>,
    /// Is told each, at once.
    tell: Option<Tell>,
}

impl Seen {
    /// Tells what finished, for the parent of a process that is about to die.
    pub(crate) fn telling(tell: impl Fn(&str) + Send + 'static) -> Self {
        Self(Mutex::new(Heard { tell: Some(Box::new(tell)), ..Heard::default() }))
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
                if let Some(tell) = &heard.tell {
                    tell(step.as_str());
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

    /// The steps that ran again although a listener was told that they had finished.
    pub(crate) fn again(&self) -> Vec<String> {
        self.heard().again.iter().cloned().collect()
    }
}
