//! The six properties of decision 5, with workflows: the process dies at every call of the store, and what comes after
//! is compared with the run that wasn't killed and with a ledger outside of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_flow::{FlowError, FlowOptions, Inputs, RunOutcome, answer_question, resume_durable, run_durable};
use piton_log::RunLog;
use piton_runtime::{EffectStatus, ForkRun, WholeHistory, fork};
use piton_store::{Span, Store};
use piton_testing::{CrashStore, Fault};
use piton_types::{CheckpointRef, RunId, RunStatus, StepPath, Value};

use crate::ledger::{Ledger, id};
use crate::support::{memory, process};

/// A payment, a note beside it, a question, and what follows from the answer; each program leaves its key in the ledger.
const DOCUMENT: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: pay, data: {type: command, checkpoint: true, command: [sh, -c, 'echo pay $PITON_IDEMPOTENCY_KEY >> ledger; echo paid']}}
  - {id: note, data: {type: template-transform, checkpoint: true, template: noted, variables: []}}
  - {id: ask, data: {type: human-input, prompt: 'Ship it?', variables: [{name: way, type: string, required: true}]}}
  - {id: ship, data: {type: command, command: [sh, -c, 'echo ship $PITON_IDEMPOTENCY_KEY >> ledger; echo by {{#ask.way#}}']}}
  - {id: out, data: {type: end, outputs: [{variable: x, value_selector: [ship, stdout]}, {variable: y, value_selector: [note, output]}]}}
edges:
  - {source: in, target: pay}
  - {source: in, target: note}
  - {source: pay, target: ask}
  - {source: ask, target: ship}
  - {source: ship, target: out}
  - {source: note, target: out}
";

fn new_ledger() -> Ledger {
    Ledger::of(DOCUMENT, Inputs::new())
}

/// Begins the run or goes on with it, answers what it asks, and so on to its end.
async fn to_the_end(ledger: &Ledger, store: &Arc<dyn Store>) -> Result<RunOutcome, FlowError> {
    loop {
        let outcome = run_durable(&process(store), ledger.start()).await?;
        if outcome.status != RunStatus::Waiting {
            return Ok(outcome);
        }
        answer(store, &id()).await?;
    }
}

async fn answer(store: &Arc<dyn Store>, run: &RunId) -> Result<(), FlowError> {
    let said = Value::map([("way", "sea".into())]);
    match answer_question(&process(store), run, None, &said, "ann").await {
        Ok(_) => Ok(()),
        Err(piton_flow::AnswerError::Run(error)) => Err(error.into()),
        Err(error) => panic!("{error}"),
    }
}

async fn calls() -> u64 {
    let counting = Arc::new(CrashStore::new(memory(), Fault::None));
    to_the_end(&new_ledger(), &(Arc::clone(&counting) as _)).await.unwrap();
    counting.calls()
}

/// A run that died at a call of its store, and what is left of it.
async fn died(fault: Fault) -> (Arc<dyn Store>, Ledger, bool) {
    let (below, ledger) = (memory(), new_ledger());
    let dying: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), fault));
    let ended = to_the_end(&ledger, &dying).await;
    (below, ledger, ended.is_err())
}

/// Every call in the full run of the tests; else every fifth, another fifth for each property.
fn chosen(calls: u64, property: u64) -> impl Iterator<Item = u64> {
    let is_full = std::env::var("PITON_TEST").is_ok_and(|level| level == "full");
    (1..=calls).filter(move |at| is_full || at % 5 == property % 5)
}

/// Dies before and after calls of the store, and looks at each that is left. Returns how many died.
async fn every_death(property: u64, mut look: impl AsyncFnMut(Arc<dyn Store>, Ledger, String)) -> u32 {
    let mut deaths = 0;
    for at in chosen(calls().await, property) {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let (store, ledger, is_dead) = died(fault).await;
            deaths += u32::from(is_dead);
            look(store, ledger, format!("{fault:?}")).await;
        }
    }
    deaths
}

async fn log(store: &Arc<dyn Store>) -> Vec<piton_types::EntryHash> {
    if store.head(&id()).await.unwrap().is_none() {
        return Vec::new();
    }
    let log = RunLog::open(Arc::clone(store), &id()).await.unwrap();
    log.entries(Span::ALL).await.unwrap().into_iter().map(|entry| entry.hash).collect()
}

async fn history(store: &Arc<dyn Store>, run: &RunId) -> WholeHistory {
    WholeHistory::of(&process(store), run).await.unwrap()
}

fn outputs() -> BTreeMap<String, Value> {
    [("x".to_owned(), "by sea\n".into()), ("y".to_owned(), "noted".into())].into()
}

#[tokio::test]
async fn property_1_a_workflow_continues_a_prefix_of_the_original() {
    let deaths = every_death(1, async |store, ledger, at| {
        let before = log(&store).await;
        let finished = match before.is_empty() {
            true => BTreeMap::new(),
            false => history(&store, &id())
                .await
                .finished()
                .iter()
                .map(|step| (step.path.clone(), step.output.clone()))
                .collect(),
        };
        assert_eq!(to_the_end(&ledger, &store).await.unwrap().outputs, outputs(), "{at}");
        let after = log(&store).await;
        assert_eq!(after[..before.len()], before, "{at}: what was there stays");
        let ended = history(&store, &id()).await;
        for (step, output) in finished {
            assert_eq!(
                ended.steps.iter().filter(|record| record.path == step && record.is_finished()).count(),
                1,
                "{at}: {step}"
            );
            assert_eq!(ended.step(&step).unwrap().output, output, "{at}: {step}");
        }
    })
    .await;
    assert!(deaths > 10, "{deaths}");
}

#[tokio::test]
async fn property_2_no_effect_of_a_workflow_repeats_without_its_key() {
    let mut repeated = 0;
    let deaths = every_death(0, async |store, ledger, at| {
        to_the_end(&ledger, &store).await.unwrap();
        let ended = history(&store, &id()).await;
        let deeds = ledger.deeds();
        assert_eq!(deeds.keys().collect::<Vec<_>>(), ["pay", "ship"], "{at}");
        for (deed, keys) in deeds {
            let effect = ended.effects.iter().find(|effect| effect.intent.path.as_str() == deed).unwrap();
            assert_eq!(effect.status(), EffectStatus::Done, "{at}");
            // At most once more, for the death in the middle, and then under the key that the ledger has.
            assert!(
                keys.len() <= 2 && keys.iter().all(|key| *key == effect.intent.key.to_string()),
                "{at}: {deed} {keys:?}"
            );
            repeated += u32::from(keys.len() == 2);
        }
    })
    .await;
    assert!(repeated > 0 && repeated < deaths, "{repeated} of {deaths}");
}

#[tokio::test]
async fn property_3_the_same_fork_of_a_workflow_with_the_same_answers_gives_the_same_run() {
    let (store, ledger) = (memory(), new_ledger());
    to_the_end(&ledger, &store).await.unwrap();
    let head = store.head(&id()).await.unwrap().unwrap().seq;
    let mut forks = 0;
    for seq in chosen(u64::from(head.0) - 1, 3) {
        let at = CheckpointRef { run: id(), seq: piton_types::Seq(u32::try_from(seq).unwrap()) };
        let mut ends = Vec::new();
        for twin in ["a", "b"] {
            let name: RunId = format!("fork-{seq}-{twin}").parse().unwrap();
            let changes = ForkRun { id: Some(name.clone()), ..ForkRun::default() };
            fork(&process(&store), &at, changes).await.unwrap();
            let outcome = loop {
                let outcome = resume_durable(&process(&store), &name, FlowOptions::default()).await.unwrap();
                if outcome.status != RunStatus::Waiting {
                    break outcome;
                }
                answer(&store, &name).await.unwrap();
            };
            let steps: BTreeMap<StepPath, Value> = history(&store, &name)
                .await
                .finished()
                .iter()
                .map(|step| (step.path.clone(), step.output.clone()))
                .collect();
            ends.push((outcome.status, outcome.outputs, steps));
            forks += 1;
        }
        assert_eq!(ends[0], ends[1], "{at}");
        assert_eq!(ends[0].1, outputs(), "{at}");
    }
    assert!(forks > 3, "{forks}");
}

#[tokio::test]
async fn property_4_every_visible_checkpoint_of_a_workflow_is_restorable() {
    let mut restored = 0;
    every_death(4, async |store, _ledger, at| {
        if store.head(&id()).await.unwrap().is_none() {
            return;
        }
        let left = history(&store, &id()).await;
        let log = RunLog::open(Arc::clone(&store), &id()).await.unwrap();
        for checkpoint in left.checkpoints {
            for (name, part) in &checkpoint.parts {
                log.load(part).await.unwrap_or_else(|error| panic!("{at}: {checkpoint:?} {name:?}: {error}"));
            }
            let from = CheckpointRef { run: id(), seq: checkpoint.seq };
            let name: RunId = format!("from-{}", checkpoint.seq).parse().unwrap();
            fork(&process(&store), &from, ForkRun { id: Some(name.clone()), ..ForkRun::default() }).await.unwrap();
            let outcome = resume_durable(&process(&store), &name, FlowOptions::default()).await.unwrap();
            assert!(matches!(outcome.status, RunStatus::Waiting | RunStatus::Completed), "{at}: {outcome:?}");
            restored += 1;
        }
    })
    .await;
    assert!(restored > 10, "{restored}");
}

#[tokio::test]
async fn property_5_each_answer_to_a_workflow_is_consumed_once() {
    every_death(5, async |store, ledger, at| {
        to_the_end(&ledger, &store).await.unwrap();
        let ended = history(&store, &id()).await;
        assert_eq!(ended.answers.len(), 1, "{at}");
        assert!(ended.questions.is_empty(), "{at}");
        assert_eq!(ended.steps.iter().filter(|step| step.path.as_str() == "ask").count(), 1, "{at}");
        assert!(answer(&store, &id()).await.is_err(), "{at}: it is answered");
    })
    .await;
}

#[tokio::test]
async fn property_6_the_recovery_of_a_workflow_can_be_killed_and_repeated() {
    let calls = calls().await;
    let mut pairs = 0;
    for at in chosen(calls, 6) {
        for again in chosen(calls, at).step_by(3) {
            let (below, ledger, is_dead) = died(Fault::CrashAfter(at)).await;
            if !is_dead {
                continue;
            }
            let dying: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), Fault::CrashBefore(again)));
            pairs += u32::from(to_the_end(&ledger, &dying).await.is_err());
            assert_eq!(to_the_end(&ledger, &below).await.unwrap().outputs, outputs(), "{at} {again}");
            for (deed, keys) in ledger.deeds() {
                assert!(keys.len() <= 3 && keys.iter().all(|key| *key == keys[0]), "{at} {again}: {deed} {keys:?}");
            }
        }
    }
    assert!(pairs > 10, "{pairs}");
}
