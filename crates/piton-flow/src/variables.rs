//! The variables of a durable run, as its checkpoints have them.
//!
//! They are kept as a state that is edited as nodes finish, so a checkpoint costs what changed since the
//! one before. Nothing is made before the first checkpoint: a run without any pays nothing. The log is
//! what counts: after a crash the state is that of the newest checkpoint and the results that the log
//! has beside it, so it has the same root as if nothing had happened.

use piton_runtime::{Run, RunError};
use piton_store::state::State;
use piton_store::{Content, DraftPart};
use piton_types::{PartName, Path, StepPath, Value};

use crate::record;

/// The shape of the part: a map of what every finished node gave, by its id, and of what assigners have set, by scope.
const SCHEMA: &str = "piton.variables";
const VERSION: u32 = 1;

/// What every finished node gave.
#[derive(Debug)]
pub(crate) struct Variables {
    /// Of the newest checkpoint and on; `None` until one is wanted.
    state: Option<State>,
    /// Finished nodes that the state may not have yet. The run has what they gave.
    behind: Vec<StepPath>,
}

impl Variables {
    /// The variables of `run`, as far as it has come.
    pub(crate) fn new(run: &Run) -> Self {
        let mut behind = Vec::new();
        run.for_each_step(|step| {
            // What begins with `#` is no node's.
            if step.is_finished() && !step.path.as_str().starts_with('#') {
                behind.push(step.path.clone());
            }
        });
        Self { state: None, behind }
    }

    /// A node finished, and no checkpoint is wanted there.
    pub(crate) fn finished(&mut self, node: StepPath) {
        self.behind.push(node);
    }

    /// The part for a checkpoint; with what `node` gave, if it is made after one.
    pub(crate) async fn part(
        &mut self,
        run: &Run,
        node: Option<(&StepPath, &Value)>,
    ) -> Result<DraftPart<'_>, RunError> {
        let state = match &mut self.state {
            Some(state) => state,
            none => none.insert(run.part_state_or(PartName::VARIABLES, &Value::map::<&str>([])).await?),
        };
        for behind in std::mem::take(&mut self.behind) {
            let place = Path::root().key(behind.as_str());
            // What a node gives is a map. One that an earlier checkpoint has isn't stored again.
            if state.len(&place).await?.is_some() {
                continue;
            }
            if let Some(step) = run.recorded(&behind) {
                put(state, &behind, &step.output).await?;
            }
        }
        if let Some((step, record)) = node {
            put(state, step, record).await?;
        }
        let name = PartName::from(PartName::VARIABLES);
        Ok(DraftPart { name, schema: SCHEMA.to_owned(), version: VERSION, content: Content::State(state) })
    }
}

/// Puts in what a step gave, and what it set of others.
async fn put(state: &mut State, step: &StepPath, record: &Value) -> Result<(), RunError> {
    state.set(&Path::root().key(step.as_str()), record::variables(record)).await?;
    // A container repeats what the nodes inside it have set.
    if step.as_str().contains('/') {
        return Ok(());
    }
    for (selector, value) in record::assignments(record) {
        let mut place = Path::root().key(selector.node);
        if state.len(&place).await?.is_none() {
            state.set(&place, Value::map::<&str>([])).await?;
        }
        if let Some((last, way)) = selector.path.split_last() {
            for word in way {
                place = place.key(word.clone());
                if state.len(&place).await?.is_none() {
                    state.set(&place, Value::map::<&str>([])).await?;
                }
            }
            state.set(&place.key(last.clone()), value).await?;
        }
    }
    Ok(())
}
