//! Forks: a new run that begins with what another one had at a checkpoint.
//!
//! Everything that it needs comes along in its entry 0, in one commit: it doesn't depend on its parent's
//! log afterwards, and a crash leaves it whole or not there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_log::{NewPart, NewRun, RunLog};
use piton_store::StoreError;
use piton_types::{
    CheckpointRef, Durability, Fence, PartName, Queued, RunId, RunKind, RunState, RunStatus, Seq, StepPath, Value,
    to_value,
};

use crate::fact::ORIGIN;
use crate::line::is_inside;
use crate::record::{EffectRecord, Origin, StepRecord};
use crate::{Context, RunError, WholeHistory};

/// A fork to be made, with what is to be different.
#[derive(Debug, Clone, Default)]
pub struct ForkRun {
    /// Its id; without one, a generated one.
    pub id: Option<RunId>,
    /// What it is called; as its parent, if nothing is said.
    pub name: Option<String>,
    /// The working directory that it belongs to; its parent's, if nothing is said.
    pub folder: Option<String>,
    /// Another document and inputs.
    pub input: Option<Value>,
    /// Parts of the state that are to be different.
    pub parts: BTreeMap<PartName, Value>,
    /// Steps that are to be done again, with all that is inside them.
    pub without: Vec<StepPath>,
    /// Steps that are to have given something else.
    pub outputs: BTreeMap<StepPath, Value>,
    /// What the acknowledgement survives.
    pub durability: Durability,
}

/// Makes a new run that has done what another one had at `at` (any entry of its log), and goes on
/// differently. The other one isn't touched, whatever its state.
///
/// Effects that took place stay done in the fork; those that it performs itself have keys of their own.
/// Questions that were open are asked again.
///
/// ```
/// # use std::sync::Arc;
/// # use piton_runtime::{Context, ForkRun, OpenRun, Run, RunError, fork};
/// # use piton_store_objects::ObjectStore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RunError> {
/// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
/// # type Nothing = Result<u32, std::io::Error>;
/// let mut run = Run::open(&context, OpenRun { id: Some("one".parse()?), ..OpenRun::default() }).await?;
/// let a = run.step("a", (), async |()| -> Nothing { Ok(2) }).await?;
/// run.step("b", a, async |a| -> Nothing { Ok(a + 1) }).await?;
///
/// let changed = ForkRun { outputs: [("a".parse()?, 20.into())].into(), ..ForkRun::default() };
/// let id = fork(&context, &"one@2".parse()?, changed).await?;
/// let mut branched = Run::open(&context, OpenRun { id: Some(id), ..OpenRun::default() }).await?;
/// let a = branched.step("a", (), async |()| -> Nothing { unreachable!("it is done") }).await?;
/// assert_eq!(branched.step("b", a, async |a| -> Nothing { Ok(a + 1) }).await?, 21);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `NotFound` from the store if there is no such run or entry, `Conflict` if there is a run of the new
/// id, `Unsupported` if it keeps no history, [`RunError::NoSuchStep`] if a step whose output is to be changed hasn't finished by then.
pub async fn fork(context: &Context, at: &CheckpointRef, fork: ForkRun) -> Result<RunId, RunError> {
    fork_into(context, context, at, fork).await
}

/// [`fork`], into another store.
#[boxed]
pub async fn fork_into(
    context: &Context,
    target: &Context,
    at: &CheckpointRef,
    fork: ForkRun,
) -> Result<RunId, RunError> {
    context.check_history("fork a run")?;
    // Nothing behind that entry is looked at: a fork is the way around a log whose end is damaged.
    let log = RunLog::open_at(Arc::clone(&context.store), &at.run, at.seq).await?;
    let summary = log.summary().await?;
    let history = WholeHistory::read_to(&log, at.seq).await?.into_history();
    let mut line = history.line;
    let left_out = |path: &StepPath| fork.without.iter().any(|step| step == path || is_inside(path, step));
    line.steps.retain(|path, _| !left_out(path));
    line.effects.retain(|path, _| !left_out(path));
    // What sums up others inside a step (`loop/#rounds`) doesn't hold any more if one of them is another.
    let changed: Vec<&StepPath> = fork.without.iter().chain(fork.outputs.keys()).collect();
    let sums_up = |path: &StepPath| {
        let outer = path.as_str().split_once("/#").and_then(|(outer, _)| outer.parse().ok());
        outer.is_some_and(|outer| changed.iter().any(|step| is_inside(step, &outer)))
    };
    line.steps.retain(|path, _| !sums_up(path));
    // What an engine's run failed of is tried again, with what failed inside it. Other failures inside steps stay:
    // they were dealt with.
    let failed: Vec<StepPath> = line
        .steps
        .values()
        .filter(|step| step.place.is_none() && !step.is_finished() && !step.path.as_str().contains('/'))
        .map(|step| step.path.clone())
        .collect();
    let is_failed = |path: &StepPath| failed.iter().any(|step| step == path || is_inside(path, step));
    line.steps.retain(|path, step| step.is_finished() || !is_failed(path));
    for (path, output) in fork.outputs {
        let Some(step) = line.steps.get_mut(&path).filter(|step| step.is_finished()) else {
            return Err(RunError::NoSuchStep { run: at.run.clone(), step: path });
        };
        Arc::make_mut(step).output = output;
    }
    let mut parts = BTreeMap::new();
    // Where a workflow is and what its nodes gave follows from its steps, which may be others now.
    let follows = |name: &PartName| {
        summary.kind == RunKind::Workflow
            && [PartName::VARIABLES, PartName::ENGINE, PartName::CHECKPOINT].contains(&name.0.as_str())
    };
    // Another store doesn't have the files of a snapshot.
    let stays = |name: &PartName| name.0 == PartName::WORKSPACE && !Arc::ptr_eq(&context.store, &target.store);
    for (name, part) in history.checkpoint.map(|(_, parts)| parts).unwrap_or_default() {
        if follows(&name) || stays(&name) {
            continue;
        }
        let value = match fork.parts.get(&name) {
            Some(value) => value.clone(),
            None => log.load(&part).await?,
        };
        parts.insert(name, NewPart { schema: part.schema, version: part.version, value });
    }
    for (name, value) in fork.parts {
        let schema = format!("piton.{}", name.0);
        parts.entry(name).or_insert(NewPart { schema, version: 1, value });
    }
    let now = target.clock.now();
    let id = fork.id.unwrap_or_else(|| RunId::generate(now, &*target.random));
    let input = fork.input.unwrap_or(history.input);
    let origin = Origin::Fork {
        checkpoint: at.clone(),
        epoch: line.epoch + 1,
        steps: in_order(line.steps, &line.order),
        effects: line.effects.into_values().filter(is_own).collect(),
        answers: line.questions.into_values().filter_map(|asked| asked.answer).collect(),
    };
    let new = NewRun {
        name: fork.name.unwrap_or(summary.name),
        kind: summary.kind,
        status: RunStatus::Queued,
        parent: Some(at.clone()),
        folder: fork.folder.or(summary.folder),
        labels: summary.labels,
        body: created(now, input, Some(&origin))?,
        parts,
        fence: Fence(0),
        durability: fork.durability,
        ..NewRun::new(id.clone(), now)
    };
    match RunLog::create(Arc::clone(&target.store), new).await {
        // There is one of that id, and it was claimed.
        Err(StoreError::Fenced { run, .. }) => {
            let head = target.store.head(&run).await?;
            Err(StoreError::Conflict { run, wanted: Seq(0), head }.into())
        }
        created => created.map(|_| id).map_err(RunError::from),
    }
}

/// Steps in the order in which they ended, which engines go by.
fn in_order(steps: BTreeMap<StepPath, Arc<StepRecord>>, order: &HashMap<StepPath, u64>) -> Vec<StepRecord> {
    let mut steps: Vec<_> = steps.into_values().map(Arc::unwrap_or_clone).collect();
    steps.sort_by_key(|step| order.get(&step.path).copied());
    steps
}

/// Whether an effect belongs to a fork too. One that an engine had in flight is its parent's alone: the fork performs
/// it with a key of its own.
fn is_own(effect: &EffectRecord) -> bool {
    effect.receipt.is_some() || effect.intent.place.is_some()
}

/// The body of entry 0.
pub(crate) fn created(at: piton_types::Timestamp, input: Value, origin: Option<&Origin>) -> Result<Value, RunError> {
    created_as(Queued { created_at: at, priority: 0, estimated_complexity: None, input }, origin)
}

/// [`created`], with what is known of how the run waits.
pub(crate) fn created_as(queued: Queued, origin: Option<&Origin>) -> Result<Value, RunError> {
    let body = to_value(&RunState::Queued(queued)).map_err(RunError::value("the body of the run"))?;
    let Some(origin) = origin else { return Ok(body) };
    let Value::Map(mut map) = body else { unreachable!("a state is a map") };
    map.insert(ORIGIN.to_owned(), to_value(origin).map_err(RunError::value("the origin of the run"))?);
    Ok(Value::Map(map))
}
