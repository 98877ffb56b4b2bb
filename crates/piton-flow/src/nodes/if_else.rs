//! `if-else`: leaves by the exit of the first case whose conditions are met, else by `false`. Gives
//! `selected_case` and `result`.
//!
//! Three ways to write it: `cases`; the conditions of one case, whose exit is `true`; and conditions with
//! ids of their own that edges leave by, the first one that is met.

use std::collections::BTreeSet;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::condition::{ConditionData, Conditions, Junction};
use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Exits, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;

/// The exit when no case is met.
const ELSE: &str = "false";

#[derive(Debug, Deserialize)]
struct Data {
    /// Tried one after the other; the exit is the `case_id` of the first that holds, else `false`.
    cases: Option<Vec<CaseData>>,
    /// In an old export: the conditions of the one case, whose exit is `true`.
    #[serde(default)]
    conditions: Vec<WithId>,
    /// How they are put together: `and` or `or`.
    #[serde(default)]
    logical_operator: Option<Junction>,
}

#[derive(Debug, Deserialize)]
struct CaseData {
    /// The name of its exit.
    case_id: Option<String>,
    /// The same, in some exports.
    id: Option<String>,
    /// How its conditions are put together: `and` (if nothing is said) or `or`.
    #[serde(default)]
    logical_operator: Option<Junction>,
    /// What must hold.
    #[serde(default)]
    conditions: Vec<ConditionData>,
}

#[derive(Debug, Deserialize)]
struct WithId {
    /// The name of the exit.
    id: Option<String>,
    /// The condition itself.
    #[serde(flatten)]
    condition: ConditionData,
}

#[derive(Debug)]
struct IfElse {
    cases: Vec<(String, Conditions)>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let mut faults = Faults::default();
    let mut cases = Vec::new();
    let at = Path::root();
    match data.cases {
        Some(written) if !written.is_empty() || data.conditions.is_empty() => {
            for (place, case) in written.into_iter().enumerate() {
                let at = at.clone().key("cases").index(place);
                let Some(id) = case.case_id.or(case.id) else {
                    faults.add(at.key("case_id"), "an id should be here");
                    continue;
                };
                let junction = case.logical_operator.unwrap_or_default();
                let checked = Conditions::check(junction, case.conditions, &at.clone().key("conditions"));
                if let Some(conditions) = faults.keep(checked) {
                    if conditions.len() == 0 && build.is_strict() {
                        faults.add(at.key("conditions"), "a case without conditions is never met");
                    }
                    cases.push((id, conditions));
                }
            }
        }
        _ => {
            let at = at.clone().key("conditions");
            let exits: BTreeSet<&str> = build.exits_in_use().collect();
            let by_id = |condition: &WithId| condition.id.as_deref().is_some_and(|id| exits.contains(id));
            if data.conditions.iter().any(by_id) {
                for (place, WithId { id, condition }) in data.conditions.into_iter().enumerate() {
                    let checked = condition.check(&at.clone().index(place));
                    if let Some(condition) = faults.keep(checked) {
                        cases.push((id.unwrap_or_else(|| "true".to_owned()), Conditions::from(condition)));
                    }
                }
            } else {
                let conditions = data.conditions.into_iter().map(|with| with.condition).collect();
                let checked = Conditions::check(data.logical_operator.unwrap_or_default(), conditions, &at);
                cases.extend(faults.keep(checked).map(|conditions| ("true".to_owned(), conditions)));
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (id, _) in &cases {
        if !seen.insert(id) {
            faults.add(at.clone().key("cases"), format!("there is a case {id:?} already"));
        }
    }
    if cases.iter().all(|(_, conditions)| conditions.len() == 0) && build.is_strict() {
        faults.add(at.key("cases"), "a condition should be here");
    }
    faults.none_or(Box::new(IfElse { cases }))
}

#[async_trait]
impl Node for IfElse {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let references = self.cases.iter().flat_map(|(_, conditions)| conditions.references());
        Ok(Value::map(references.map(|selector| (selector.to_string(), variables.select(selector)))))
    }

    async fn run(&self, _inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let mut selected = ELSE;
        for (id, conditions) in &self.cases {
            // Nothing was asked for.
            if conditions.len() == 0 {
                continue;
            }
            match conditions.met(context.variables()) {
                Ok(true) => {
                    selected = id;
                    break;
                }
                Ok(false) => {}
                Err(why) if context.is_strict() => return Err(NodeError::new("TypeError", why)),
                // As if none of the cases were met: a comparison that makes no sense proves nothing.
                Err(_) => break,
            }
        }
        let variables = [("selected_case", selected.into()), ("result", (selected != ELSE).into())];
        Ok(NodeOutput::of(variables).by(selected))
    }

    fn references(&self) -> Vec<&Selector> {
        self.cases.iter().flat_map(|(_, conditions)| conditions.references()).collect()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn exits(&self) -> Exits {
        let cases = self.cases.iter().map(|(id, _)| id.clone());
        Exits::Named(cases.chain([ELSE.to_owned()]).collect())
    }
}
