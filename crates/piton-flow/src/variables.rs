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

/// The shape of the part: a map of what every finished node gave, by its id.
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
        Self { state: None, behind: run.finished() }
    }

    /// A node finished, and no checkpoint is wanted there.
    pub(crate) fn finished(&mut self, node: StepPath) {
        self.behind.push(node);
    }

    /// The part for the checkpoint after `node`, which gave `outputs`.
    pub(crate) async fn with(
        &mut self,
        run: &Run,
        node: &StepPath,
        outputs: &Value,
    ) -> Result<DraftPart<'_>, RunError> {
        let state = match &mut self.state {
            Some(state) => state,
            none => none.insert(run.part_state_or(PartName::VARIABLES, &Value::map::<&str>([])).await?),
        };
        for behind in &self.behind {
            let place = Path::root().key(behind.as_str());
            // What a node gives is a map. One that an earlier checkpoint has isn't stored again.
            if state.len(&place).await?.is_some() {
                continue;
            }
            if let Some(step) = run.recorded(behind) {
                state.set(&place, crate::record::variables(&step.output)).await?;
            }
        }
        self.behind.clear();
        state.set(&Path::root().key(node.as_str()), outputs.clone()).await?;
        let name = PartName::from(PartName::VARIABLES);
        Ok(DraftPart { name, schema: SCHEMA.to_owned(), version: VERSION, content: Content::State(state) })
    }
}
