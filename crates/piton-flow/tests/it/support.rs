//! Running a document without a store, and telling what it did.

#[cfg(feature = "checkpoint")]
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use piton_flow::{Document, EventSink, Flow, FlowError, Format, Host, Ids, Inputs, Kinds, NoJournal, Outputs, run};
#[cfg(feature = "checkpoint")]
use piton_runtime::{Context, this_process};
#[cfg(feature = "checkpoint")]
use piton_store::Store;
use piton_testing::ManualClock;
#[cfg(feature = "checkpoint")]
use piton_testing::SeededRandom;
#[cfg(feature = "checkpoint")]
use piton_types::Holder;
use piton_types::{Event, Value};

pub(crate) fn inputs<const N: usize>(given: [(&str, Value); N]) -> Inputs {
    given.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What an event is about, in a word or two.
pub(crate) fn tell(event: &Event) -> String {
    match event {
        Event::RunStarted { resumed, .. } => format!("started {resumed}"),
        Event::StepStarted { step, .. } => format!("begun {step}"),
        Event::StepSkipped { step, .. } => format!("skipped {step}"),
        Event::StepFinished { step, .. } => format!("finished {step}"),
        Event::StepFailed { step, .. } => format!("failed {step}"),
        Event::CheckpointSaved { checkpoint, .. } => format!("saved {checkpoint}"),
        Event::CheckpointResumed { checkpoint, .. } => format!("from {checkpoint}"),
        Event::RunSucceeded { .. } => "succeeded".to_owned(),
        Event::RunFailed { .. } => "run failed".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Ids from a counter.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Ids for Counter {
    fn next(&self) -> String {
        format!("id-{}", self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Runs a document and returns its outputs and what was told meanwhile.
pub(crate) async fn run_told(text: &str, format: Format, inputs: Inputs) -> (Result<Outputs, FlowError>, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let tell = |event: &Event| told.lock().unwrap().push(tell(event));
    let (journal, clock, ids) = (NoJournal::new("a-run".parse().unwrap()), ManualClock::default(), Counter::default());
    let host = Host { events: EventSink::Call(&tell), ..Host::new(&journal, &clock, &ids) };
    let flow = Document::parse(text, format).and_then(|document| Flow::build(&document, &Kinds::builtin()));
    let ended = match flow {
        Ok(flow) => run(&flow, inputs, &host).await.map(|finished| finished.outputs),
        Err(problems) => Err(FlowError::Document(problems)),
    };
    (ended, told.into_inner().unwrap())
}

pub(crate) async fn run_yaml(text: &str, inputs: Inputs) -> Result<Outputs, FlowError> {
    run_told(text, Format::Yaml, inputs).await.0
}

/// A value as text; nothing for null.
#[cfg(feature = "checkpoint")]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A process that to everybody else is dead, by a clock of its own.
#[cfg(feature = "checkpoint")]
pub(crate) fn process(store: &Arc<dyn Store>) -> Context {
    process_at(store, &Arc::default())
}

/// A process that to everybody else is dead, by this clock.
#[cfg(feature = "checkpoint")]
pub(crate) fn process_at(store: &Arc<dyn Store>, clock: &Arc<ManualClock>) -> Context {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(5_000_000);
    let pid = NEXT.fetch_add(1, Ordering::Relaxed);
    Context {
        store: Arc::clone(store),
        clock: Arc::clone(clock) as _,
        random: Arc::new(SeededRandom::new(pid.into())),
        holder: Holder { pid, started: 1, ..this_process() },
    }
}

#[cfg(feature = "checkpoint")]
pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(piton_store_objects::ObjectStore::in_memory())
}
