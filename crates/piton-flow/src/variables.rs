//! The variables of a durable run, as its checkpoints have them.
//!
//! They are kept as a state that is edited as nodes finish, so a checkpoint costs what changed since the
//! one before. Nothing is made before the first checkpoint: a run without any pays nothing. The log is
//! what counts: after a crash the state is that of the newest checkpoint and the results that the log
//! has beside it, so it has the same root as if nothing had happened.

use std::collections::{BTreeSet, HashSet};

use piton_log::state::State;
use piton_log::{Content, DraftPart};
use piton_runtime::{RunError, Turn};
use piton_types::{PartName, Path, StepPath, Value};

use crate::record;
use crate::runner::updates;
use crate::selector::Selector;

/// The shape of the part: a map of what every finished node gave, by its id, and of what assigners and
/// people have set, by scope.
const SCHEMA: &str = "piton.variables";
const VERSION: u32 = 1;

/// What every finished node gave.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// Of the newest checkpoint and on; `None` until one is wanted.
    state: Option<State>,
    /// Finished nodes, and updates by hand, that the state may not have yet, in order. The run has what they gave.
    behind: Vec<StepPath>,
    /// Nodes and scopes of which others have set something, so the state may have them before they finish.
    assigned: BTreeSet<String>,
}

impl Variables {
    /// A node finished, and no checkpoint is wanted there. Costs nothing before the first one.
    pub(crate) fn finished(&mut self, node: &StepPath) {
        if self.state.is_some() {
            self.behind.push(node.clone());
        }
    }

    /// Begins the state, and looks what it may not have: what ended before the steps that come `later` in the same
    /// burst.
    fn begin(&mut self, turn: &Turn<'_>, later: &HashSet<&StepPath>) -> Result<State, RunError> {
        let state = turn.part_state_or(PartName::VARIABLES, &Value::map::<&str>([]))?;
        *self = Self::default();
        turn.for_each_step(|step| {
            let is_update = updates::are(&step.path);
            // What else begins with `#` is no node's.
            let is_before = step.is_finished() && !later.contains(&step.path);
            if is_before && (is_update || !step.path.as_str().starts_with('#')) {
                self.behind.push(step.path.clone());
                let assignments = record::assignments(&step.output);
                self.assigned.extend(assignments.into_iter().map(|(selector, _)| selector.node));
            }
        });
        Ok(state)
    }

    /// The part for a checkpoint; with what `node` gave, if it is made after one. `later` are the steps of the same burst
    /// from there on.
    pub(crate) async fn part<'s>(
        &mut self,
        turn: &Turn<'_>,
        node: Option<&Gave>,
        later: impl Iterator<Item = &'s StepPath>,
    ) -> Result<DraftPart<'_>, RunError> {
        if self.state.is_none() {
            self.state = Some(self.begin(turn, &later.collect())?);
        }
        let Some(state) = &mut self.state else { unreachable!("it was begun above") };
        let has_updates = self.behind.iter().any(updates::are);
        for behind in &self.behind {
            // What a node gives is a map. One that an earlier checkpoint has isn't stored again; unless something was
            // set by hand, since the later of the two counts.
            if !has_updates && state.len(&Path::root().key(behind.as_str())).await?.is_some() {
                continue;
            }
            let Some(step) = turn.recorded(behind) else { continue };
            if updates::are(behind) {
                for update in updates::read(behind, step.output.clone())? {
                    self.assigned.insert(update.selector.node.clone());
                    assign(state, update.selector, update.value).await?;
                }
            } else {
                let variables = record::variables(&step.output).into_owned();
                state.set(&Path::root().key(behind.as_str()), variables).await?;
                let assignments = if is_inside(behind) { Vec::new() } else { record::assignments(&step.output) };
                put(state, assignments, &mut self.assigned).await?;
            }
        }
        self.behind.clear();
        if let Some(gave) = node {
            // Only what is new is merged, so that nothing stays of what is replaced.
            if self.assigned.contains(gave.step.as_str()) {
                state.remove(&Path::root().key(gave.step.as_str())).await?;
            }
            state.merge(&Path::root(), &[(gave.step.as_str(), &gave.variables)]).await?;
            put(state, gave.assignments.clone(), &mut self.assigned).await?;
        }
        let name = PartName::from(PartName::VARIABLES);
        Ok(DraftPart { name, schema: SCHEMA.to_owned(), version: VERSION, content: Content::State(state) })
    }
}

/// What a node gave, for a checkpoint after it.
#[derive(Debug)]
pub(crate) struct Gave {
    step: StepPath,
    variables: Value,
    /// What it set of others.
    assignments: Vec<(Selector, Value)>,
}

impl Gave {
    pub(crate) fn new(step: &StepPath, record: &Value) -> Self {
        let variables = record::variables(record).into_owned();
        let assignments = if is_inside(step) { Vec::new() } else { record::assignments(record) };
        Self { step: step.clone(), variables, assignments }
    }
}

/// Whether a step is one inside a container, which repeats what the nodes inside it have set.
fn is_inside(step: &StepPath) -> bool {
    step.as_str().contains('/')
}

/// Sets variables of others, who are noted.
async fn put(
    state: &mut State,
    assignments: Vec<(Selector, Value)>,
    assigned: &mut BTreeSet<String>,
) -> Result<(), RunError> {
    for (selector, value) in assignments {
        assigned.insert(selector.node.clone());
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
