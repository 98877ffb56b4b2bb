//! Conversations: each turn is a run of its own, which takes what it needs of the turn before along in its entry 0. The first
//! turn of the conversation `c1` is the run `c1`, the next ones are `c1-2`, `c1-3`, …; a turn is resumed, forked and removed
//! like any other run, and the conversation goes on from the newest turn that the store has.

use std::collections::BTreeMap;

use piton_runtime::{Context, History, RunError};
use piton_store::{RunQuery, StoreError};
use piton_types::{RunId, RunKind, RunState, RunStatus, Value};

use crate::body::FlowBody;
use crate::error::FlowError;
use crate::flow::Given;
use crate::value::to_text;

/// How many earlier messages a turn takes along; as many as Dify gives a model.
const REMEMBERED: usize = 500;

/// A conversation to go on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its id, which is that of its first turn.
    pub id: RunId,
    /// Which turn is meant, from 1. If nothing is said, a question that differs from the last one is the next turn.
    pub turn: Option<u32>,
}

/// The turn of a conversation that a question belongs to.
#[derive(Debug, Clone)]
pub struct NextTurn {
    /// Its run.
    pub run: RunId,
    /// Which turn it is, from 1.
    pub number: u32,
    /// How its run stands; nothing if the turn is new.
    pub status: Option<RunStatus>,
    /// What the run is given, or was.
    pub given: Given,
}

/// A turn that the store has.
struct Turn {
    run: RunId,
    number: u32,
    body: FlowBody,
    state: RunState,
}

/// Finds the turn that a question belongs to.
///
/// - The turn before is answered, and this is another question: a new turn, with the variables and messages so far.
/// - This is the same question, with the same inputs and files, or none: that turn, which goes on or has its answer.
/// - The turn before failed or was cancelled, and this is another question: a new turn, as if that one hadn't been.
///
/// Inputs and the user's id that aren't given stay as they were. Nothing is written.
///
/// # Errors
///
/// [`FlowError::TurnOpen`] if another question isn't answered yet; [`FlowError::NoSuchTurn`];
/// [`FlowError::Differs`] if a run that isn't of this conversation has the id of its next turn; and what the store says.
pub async fn next_turn(context: &Context, conversation: &Conversation, said: Given) -> Result<NextTurn, FlowError> {
    let Conversation { id, turn } = conversation;
    let (last, others) = turns(context, id).await?;
    let next = last.as_ref().map_or(1, |last| last.number + 1);
    let asked = turn.unwrap_or(next);
    if asked == 0 || asked > next {
        return Err(FlowError::NoSuchTurn { conversation: id.clone(), turn: asked, next });
    }
    let Some(last) = last else { return begin(id, 1, &others, said, None) };
    if turn.is_some() && asked < next {
        let run = name(id, asked)?;
        let found = match asked == last.number {
            true => last,
            false => read(context, &run, asked).await?.ok_or_else(|| RunError::Store(StoreError::no_run(&run)))?,
        };
        return Ok(found.existing(said));
    }
    let has_question = said.system.contains_key("query");
    if turn.is_none() && (!has_question || last.is_asked(&said)) && last.state.status() != RunStatus::Cancelled {
        return Ok(last.existing(said));
    }
    match last.state.status() {
        RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled if has_question => {
            begin(id, next, &others, said, Some(last))
        }
        RunStatus::Cancelled => Ok(last.existing(said)),
        status => Err(FlowError::TurnOpen { run: last.run, status }),
    }
}

/// The newest turn of a conversation, and runs whose ids look like those of later ones.
async fn turns(context: &Context, id: &RunId) -> Result<(Option<Turn>, Vec<RunId>), FlowError> {
    let query = RunQuery { id_prefix: id.as_str().to_owned(), kinds: vec![RunKind::Workflow], ..RunQuery::default() };
    let runs = context.store.list(query).await.map_err(RunError::Store)?;
    let mut numbered: Vec<(u32, RunId)> =
        runs.into_iter().filter_map(|run| Some((number(id, &run.id)?, run.id))).collect();
    numbered.sort_unstable_by(|a, b| b.cmp(a));
    let mut others = Vec::new();
    for (number, run) in numbered {
        match read(context, &run, number).await? {
            Some(turn) if turn.body.system.get("conversation_id").and_then(Value::as_str) == Some(id.as_str()) => {
                return Ok((Some(turn), others));
            }
            Some(_) => others.push(run),
            // It was removed meanwhile.
            None => {}
        }
    }
    Ok((None, others))
}

async fn read(context: &Context, run: &RunId, number: u32) -> Result<Option<Turn>, FlowError> {
    let history = match History::of(context, run).await {
        Ok(history) => history,
        Err(RunError::Store(StoreError::NotFound { .. })) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let body = FlowBody::of_history(run, &history).await?;
    Ok(Some(Turn { run: run.clone(), number, body, state: history.state }))
}

/// Which turn of a conversation a run could be, by its id.
fn number(conversation: &RunId, run: &RunId) -> Option<u32> {
    let rest = run.as_str().strip_prefix(conversation.as_str())?;
    if rest.is_empty() {
        return Some(1);
    }
    let number = rest.strip_prefix('-')?.parse().ok().filter(|number| *number > 1)?;
    (rest == format!("-{number}")).then_some(number)
}

/// The id of a turn's run.
fn name(conversation: &RunId, number: u32) -> Result<RunId, FlowError> {
    match number {
        1 => Ok(conversation.clone()),
        _ => {
            let id = format!("{conversation}-{number}");
            id.parse().map_err(|_| FlowError::Id(id))
        }
    }
}

/// A turn that is new, behind another one.
fn begin(
    conversation: &RunId,
    number: u32,
    others: &[RunId],
    said: Given,
    before: Option<Turn>,
) -> Result<NextTurn, FlowError> {
    let run = name(conversation, number)?;
    if others.contains(&run) {
        return Err(FlowError::Differs { run, what: "a conversation" });
    }
    let mut given = match before {
        None => said,
        Some(before) => before.followed_by(said),
    };
    given.system.insert("conversation_id".to_owned(), conversation.as_str().into());
    given.system.insert("dialogue_count".to_owned(), number.into());
    Ok(NextTurn { run, number, status: None, given })
}

impl Turn {
    /// What is said, with what the turn was given where nothing is.
    fn with_own(&self, mut said: Given) -> Given {
        let mut inputs = self.body.inputs.clone();
        inputs.extend(said.inputs);
        said.inputs = inputs;
        said
    }

    /// Whether this is what it was asked.
    fn is_asked(&self, said: &Given) -> bool {
        let same = |name| said.system.get(name).is_none_or(|said| self.body.system.get(name) == Some(said));
        same("query") && same("files") && self.with_own(said.clone()).inputs == self.body.inputs
    }

    /// This turn itself, to go on with.
    fn existing(self, said: Given) -> NextTurn {
        let given = self.with_own(said);
        NextTurn { status: Some(self.state.status()), run: self.run, number: self.number, given }
    }

    /// What the turn behind it is given.
    fn followed_by(self, said: Given) -> Given {
        let mut given = self.with_own(said);
        let mut system = self.body.system;
        if let Some(user) = system.remove("user_id") {
            given.system.entry("user_id".to_owned()).or_insert(user);
        }
        let mut history = match system.remove("history") {
            Some(Value::List(history)) => history,
            _ => Vec::new(),
        };
        // One that failed or was cancelled leaves what it began with.
        given.conversation = self.body.conversation;
        if let RunState::Completed(completed) = self.state {
            let answer = completed.output.field("answer").unwrap_or(&completed.output);
            let asked = system.get("query").map(to_text).unwrap_or_default();
            history.push(message("user", asked));
            history.push(message("assistant", to_text(answer)));
            if let Value::Map(kept) = completed.kept {
                given.conversation = kept;
            }
        }
        history.drain(..history.len().saturating_sub(REMEMBERED));
        if !history.is_empty() {
            given.system.insert("history".to_owned(), Value::List(history));
        }
        given
    }
}

fn message(role: &str, content: String) -> Value {
    Value::Map(BTreeMap::from([("role".to_owned(), role.into()), ("content".to_owned(), content.into())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_told_by_their_ids() {
        let id: RunId = "c1".parse().unwrap();
        let of = |run: &str| number(&id, &run.parse().unwrap());
        assert_eq!(["c1", "c1-2", "c1-10"].map(of), [Some(1), Some(2), Some(10)]);
        assert_eq!(
            ["c10", "c1-1", "c1-02", "c1-+2", "c1-x", "c1-"]
                .map(|run| run.parse().ok().and_then(|run| number(&id, &run))),
            [None; 6]
        );
        for turn in [1, 2, 10] {
            assert_eq!(number(&id, &name(&id, turn).unwrap()), Some(turn));
        }
    }
}
