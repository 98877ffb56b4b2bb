//! The variables of a durable run, as its checkpoints have them.
//!
//! They are kept as a state that is edited as nodes finish, so a checkpoint costs what changed since the
//! one before. Nothing is made before the first checkpoint: a run without any pays nothing. The log is
//! what counts: after a crash the state is that of the newest checkpoint and the results that the log
//! has behind it, so it has the same root as if nothing had happened.

use piton_log::state::State;
use piton_log::{Content, DraftPart};
use piton_runtime::{RunError, Turn};
use piton_types::{PartName, Path, Seq, StepPath, Value};

use crate::engine::{HANDLER, VERIFICATION};
use crate::record;
use crate::runner::updates;
use crate::selector::Selector;

/// The shape of the part: a map of what every finished node gave, by its id, and of what assigners and
/// people have set, by scope. Of a node inside a container it is what the newest round gave, so that the part is as large
/// as the document, however many rounds there were.
const SCHEMA: &str = "piton.variables";
const VERSION: u32 = 1;

/// What every finished node gave.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// Of the newest checkpoint and on; `None` until one is wanted.
    state: Option<State>,
    /// Finished nodes, and updates by hand, that the state doesn't have yet, in order. The run has what they gave.
    behind: Vec<StepPath>,
}

impl Variables {
    /// A node finished, and no checkpoint is wanted there. Costs nothing before the first one.
    pub(crate) fn finished(&mut self, node: &StepPath) {
        if self.state.is_some() {
            self.behind.push(node.clone());
        }
    }

    /// The part for a checkpoint; with what `node` gave, if it is made after one. The newest checkpoint has what finished
    /// until the entry `known`; `earlier` are the steps of the same burst that finished before this one.
    pub(crate) async fn part<'s>(
        &mut self,
        turn: &Turn<'_>,
        known: Option<Seq>,
        node: Option<&Gave>,
        earlier: impl Iterator<Item = &'s StepPath>,
    ) -> Result<DraftPart<'_>, RunError> {
        let state = match &mut self.state {
            Some(state) => state,
            none => {
                let mut state = turn.part_state_or(PartName::VARIABLES, &Value::map::<&str>([]))?;
                for step in turn.steps_behind(known).await?.iter().filter(|step| step.is_finished()) {
                    take(&mut state, &step.path, &step.output).await?;
                }
                self.behind = earlier.cloned().collect();
                none.insert(state)
            }
        };
        for behind in self.behind.drain(..) {
            if let Some(step) = turn.recorded(&behind) {
                take(state, &behind, &step.output).await?;
            }
        }
        if let Some(gave) = node {
            gave.put(state).await?;
        }
        let name = PartName::from(PartName::VARIABLES);
        Ok(DraftPart { name, schema: SCHEMA.to_owned(), version: VERSION, content: Content::State(state) })
    }
}

/// Takes in what a step gave.
async fn take(state: &mut State, step: &StepPath, record: &Value) -> Result<(), RunError> {
    if updates::are(step) {
        for (selector, value) in updates::read(step, record.clone())? {
            assign(state, selector, value).await?;
        }
    } else if record::is_node(step) {
        Gave::new(step, record).put(state).await?;
    }
    Ok(())
}

/// What a node gave.
#[derive(Debug)]
pub(crate) struct Gave {
    node: String,
    variables: Value,
    /// What it set of others.
    assignments: Vec<(Selector, Value)>,
}

impl Gave {
    pub(crate) fn new(step: &StepPath, record: &Value) -> Self {
        let variables = record::variables(record).into_owned();
        // A container repeats what the nodes inside it have set.
        let is_inside = step.as_str().contains('/');
        let assignments = if is_inside { Vec::new() } else { record::assignments(record) };
        Self { node: node_of(step), variables, assignments }
    }

    async fn put(&self, state: &mut State) -> Result<(), RunError> {
        // Only what is new is merged, so that nothing stays of what is replaced.
        let own = Path::root().key(self.node.as_str());
        if state.len(&own).await?.is_some() {
            state.remove(&own).await?;
        }
        state.merge(&Path::root(), &[(self.node.as_str(), &self.variables)]).await?;
        for (selector, value) in self.assignments.clone() {
            assign(state, selector, value).await?;
        }
        Ok(())
    }
}

/// The node of a step, without the rounds in which it ran: `loop/node` for `loop/3/node`.
fn node_of(step: &StepPath) -> String {
    let (handler, path) = match step.as_str().split_once('/') {
        Some((first, inside)) if first.starts_with(HANDLER) || first == VERIFICATION => (Some(first), inside),
        _ => (None, step.as_str()),
    };
    // A node and a round in turn. The parts of a node's own work are no numbers.
    let is_round = |place: usize, word: &str| place % 2 == 1 && word.bytes().all(|byte| byte.is_ascii_digit());
    let words = path.split('/').enumerate().filter(|(place, word)| !is_round(*place, word)).map(|(_, word)| word);
    handler.into_iter().chain(words).collect::<Vec<_>>().join("/")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_place_whatever_the_round() {
        for (step, node) in [
            ("a", "a"),
            ("17", "17"),
            ("loop/3/node", "loop/node"),
            ("17/3/18", "17/18"),
            ("loop/3/inner/12/node", "loop/inner/node"),
            ("loop/3/agent/turn-2", "loop/agent/turn-2"),
            ("error-handler/17", "error-handler/17"),
            ("error-handler#2/loop/3/17", "error-handler#2/loop/17"),
        ] {
            assert_eq!(node_of(&step.parse().unwrap()), node);
        }
    }
}
