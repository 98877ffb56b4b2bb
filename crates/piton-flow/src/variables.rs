//! The variables of a durable run, as its checkpoints have them.
//!
//! They are kept as a state that is edited as nodes finish, so a checkpoint costs what changed since the
//! one before. Nothing is made before the first checkpoint: a run without any pays nothing. The log is
//! what counts: after a crash the state is that of the newest checkpoint and the results that the log
//! has beside it, so it has the same root as if nothing had happened.

use piton_runtime::{Run, RunError, StepStanding};
use piton_store::state::State;
use piton_store::{Content, DraftPart};
use piton_types::{PartName, Path, StepPath, Value};

use crate::record;
use crate::runner::updates;
use crate::selector::Selector;

/// The shape of the part: a map of what every finished node gave, by its id, and of what assigners and
/// people have set, by scope.
const SCHEMA: &str = "piton.variables";
const VERSION: u32 = 1;

/// What every finished node gave.
#[derive(Debug)]
pub(crate) struct Variables {
    /// Of the newest checkpoint and on; `None` until one is wanted.
    state: Option<State>,
    /// Finished nodes, and updates by hand, that the state may not have yet. The run has what they gave.
    behind: Vec<StepPath>,
    /// How many updates by hand were taken in or are behind.
    updates: u32,
}

impl Variables {
    /// The variables of `run`, as far as it has come.
    pub(crate) fn new(run: &Run) -> Self {
        let (mut behind, mut updates) = (Vec::new(), 0);
        run.for_each_step(|step| {
            let is_update = updates::are(&step.path);
            // What else begins with `#` is no node's.
            if step.is_finished() && (is_update || !step.path.as_str().starts_with('#')) {
                behind.push(step.path.clone());
                updates += u32::from(is_update);
            }
        });
        Self { state: None, behind, updates }
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
        // Updates are recorded by others.
        while let Some(update) = Some(updates::path(self.updates + 1)?).filter(|path| run.recorded(path).is_some()) {
            self.updates += 1;
            self.behind.push(update);
        }
        let has_updates = self.behind.iter().any(updates::are);
        if has_updates {
            let order = |path: &StepPath| match run.standing(path) {
                StepStanding::Finished { order, .. } => Some(order),
                _ => None,
            };
            self.behind.sort_by_cached_key(order);
        }
        for behind in &self.behind {
            // What a node gives is a map. One that an earlier checkpoint has isn't stored again; unless something was
            // set by hand, since the later of the two counts.
            if !has_updates && state.len(&Path::root().key(behind.as_str())).await?.is_some() {
                continue;
            }
            let Some(step) = run.recorded(behind) else { continue };
            if updates::are(behind) {
                for update in updates::read(behind, step.output)? {
                    assign(state, update.selector, update.value).await?;
                }
            } else {
                put(state, behind, &step.output).await?;
            }
        }
        // Only now: whoever waits for this may be dropped, and then they are put in once more.
        self.behind.clear();
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
        assign(state, selector, value).await?;
    }
    Ok(())
}

/// Sets a variable, and makes what is around it.
async fn assign(state: &mut State, selector: Selector, value: Value) -> Result<(), RunError> {
    let mut place = Path::root().key(selector.node);
    let Some((last, way)) = selector.path.split_last() else { return Ok(()) };
    for word in std::iter::once(None).chain(way.iter().map(Some)) {
        if let Some(word) = word {
            place = place.key(word.clone());
        }
        if state.len(&place).await?.is_none() {
            state.set(&place, Value::map::<&str>([])).await?;
        }
    }
    state.set(&place.key(last.clone()), value).await?;
    Ok(())
}
