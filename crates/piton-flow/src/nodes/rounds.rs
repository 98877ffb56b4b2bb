//! What the finished rounds of a container came to, kept in the log from time to time: a process that goes on with the
//! run begins there, and not with the first round.
//!
//! The record says what a round begins with. It stands in the log behind everything that the rounds before it gave, so
//! if it is there, they are over. What rounds gave lies beside it, and is read when the container ends. The round itself and
//! those behind it are replayed from what their nodes gave, like every graph.

use std::time::Duration;

use piton_types::{StepPath, TokenUsage, Value, from_value, to_value};
use serde::{Deserialize, Serialize};

use crate::dispatch::Ended;
use crate::engine::Inputs;
use crate::error::FlowError;
use crate::graph::Graph;
use crate::journal::{Found, NodeDone};
use crate::node::{Effect, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::record;
use crate::selector::Selector;

/// About so many nodes end between two records.
const EVERY: usize = 128;

/// No node can have this name.
const NAME: &str = "#rounds";

/// What a round begins with.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Begins {
    /// Its number.
    pub(super) round: usize,
    /// The variables of the container, as the rounds before have left them.
    pub(super) variables: Inputs,
    /// How many updates by hand the variables around it have had.
    updates: usize,
    /// How many records there are of what rounds gave.
    given: usize,
    /// If a round failed: which attempt that was. Another one tries it again.
    failed: Option<(u32, u32)>,
    /// What rounds have set of variables of others, and how many failures they went on from.
    #[serde(skip)]
    pub(super) output: NodeOutput,
}

/// The records of a container.
#[derive(Debug)]
pub(super) struct Rounds<'a> {
    context: &'a NodeContext<'a>,
    /// How many rounds come between two records.
    every: usize,
    /// What the newest record says.
    newest: Begins,
    /// How many records of what rounds gave were there when the container began.
    found: usize,
    /// How much of what rounds gave since is kept.
    kept: usize,
}

impl<'a> Rounds<'a> {
    /// The records of a container that repeats `graph`, and what it begins with.
    ///
    /// The variables around it, `around`, become those of then.
    pub(super) async fn open(
        context: &'a NodeContext<'a>,
        graph: &Graph,
        around: &mut VariablePool,
    ) -> Result<(Self, Begins), NodeError> {
        let every = (EVERY / graph.nodes.len().max(1)).max(1);
        let mut rounds = Self { context, every, newest: Begins::default(), found: 0, kept: 0 };
        let Some((found, usage)) = rounds.find(NAME).await? else { return Ok((rounds, Begins::default())) };
        let output = record::read(found);
        let unfit = |_| NodeError::new("EngineError", "what its finished rounds came to can't be read");
        let begins: Begins = from_value(Value::Map(output.variables.clone())).map_err(unfit)?;
        if begins.failed.is_some_and(|failed| failed != rounds.attempt()) {
            return Ok((rounds, Begins::default()));
        }
        context.used_inside(usage);
        rounds.found = begins.given;
        let (round, given, failed) = (begins.round, begins.given, begins.failed);
        rounds.newest = Begins { round, given, failed, ..Begins::default() };
        if let Some(control) = context.host.control {
            control.make_again(around, begins.updates);
        }
        output.assignments.iter().for_each(|(selector, value)| around.assign(selector, value.clone()));
        Ok((rounds, Begins { output: NodeOutput { variables: Inputs::new(), ..output }, ..begins }))
    }

    /// The attempt at the run, and at the container in it.
    fn attempt(&self) -> (u32, u32) {
        (self.context.host.facts().retries, self.context.attempt())
    }

    fn step(&self, name: &str) -> Result<StepPath, NodeError> {
        let deep = |_| NodeError::new("EngineError", "it lies too deep inside others for its place in the log");
        format!("{}/{name}", self.context.step()).parse().map_err(deep)
    }

    async fn find(&self, name: &str) -> Result<Option<(Value, TokenUsage)>, NodeError> {
        let host = self.context.host;
        if !host.facts().keeps {
            return Ok(None);
        }
        let found = host.journal.find(&self.step(name)?).await;
        match found.map_err(|error| self.context.fail_run(FlowError::Journal(error)))? {
            Found::Finished { record, usage, .. } => Ok(Some((record, usage))),
            _ => Ok(None),
        }
    }

    fn write(&self, name: &str, record: Value) -> Result<(), NodeError> {
        let host = self.context.host;
        host.burst.ended(NodeDone {
            step: self.step(name)?,
            inputs: Value::Null,
            result: Ok(record),
            started_at: host.clock.now(),
            duration: Duration::ZERO,
            effect: Effect::Pure,
            checkpoint: false,
            retry: None,
            unanswered: false,
            // What the rounds so far have used, for the container that begins here.
            usage: self.context.used_so_far(),
        });
        Ok(())
    }

    /// A round is about to begin, with these variables of the container and `around` it, after what the rounds before it came to. `given` is what those of
    /// this process gave, with nothing for one that failed. Keeps that, if it is time to.
    pub(super) fn keep(
        &mut self,
        round: usize,
        variables: &Inputs,
        around: &VariablePool,
        output: &NodeOutput,
        given: &[Option<Value>],
    ) -> Result<(), NodeError> {
        let is_due = round >= self.newest.round + self.every;
        // A round of a run that can't go on may have been cut short.
        if !is_due || !self.context.host.facts().keeps || self.context.is_broken() {
            return Ok(());
        }
        let new = &given[self.kept..];
        if new.iter().any(Option::is_none) {
            self.newest.failed = Some(self.attempt());
        }
        if !new.is_empty() {
            // Apart from those that gave null.
            let given = new.iter().map(|given| Value::List(given.iter().cloned().collect())).collect();
            self.write(&format!("{NAME}/{}", self.newest.given), Value::List(given))?;
            self.newest.given += 1;
        }
        (self.newest.round, self.kept) = (round, given.len());
        self.newest.variables.clone_from(variables);
        self.newest.updates = around.updates;
        let unfit = |error: piton_types::ValueError| NodeError::new("EngineError", error.to_string());
        let begins = to_value(&self.newest).map_err(unfit)?;
        let variables = begins.as_map().cloned().unwrap_or_default();
        let NodeOutput { assignments, exceptions, .. } = output.clone();
        self.write(NAME, record::write(&NodeOutput { variables, assignments, exceptions, exit: None }))
    }

    /// A round ended. What was set by hand while it ran counts around it too, and is returned; what rounds have set
    /// before it counts no more.
    pub(super) fn ended(
        &self,
        around: &mut VariablePool,
        output: &mut NodeOutput,
        ended: &mut Ended,
    ) -> Vec<(Selector, Value)> {
        self.context.host.control.map_or_else(Vec::new, |control| {
            control.round_ended(around, &mut output.assignments, &ended.pool, &mut ended.assignments)
        })
    }

    /// All rounds ended.
    pub(super) fn all_ended(&self, around: &mut VariablePool, output: &mut NodeOutput) {
        if let Some(control) = self.context.host.control {
            control.make_updates(around, None, &mut output.assignments);
        }
    }

    /// What the rounds before those of this process gave.
    pub(super) async fn given(&self) -> Result<Vec<Option<Value>>, NodeError> {
        let mut all = Vec::new();
        for number in 0..self.found {
            let Some((Value::List(given), _)) = self.find(&format!("{NAME}/{number}")).await? else {
                return Err(NodeError::new("EngineError", "what some of its finished rounds gave isn't in the log"));
            };
            all.extend(given.iter().map(|given| given.as_list().and_then(|given| given.first().cloned())));
        }
        Ok(all)
    }
}

/// Adds what a round has set of variables of others. Of each variable the last counts.
pub(super) fn set(assignments: &mut Vec<(Selector, Value)>, selector: Selector, value: Value) {
    assignments.retain(|(other, _)| *other != selector);
    assignments.push((selector, value));
}
