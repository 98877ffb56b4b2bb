//! The tools: routes of the table under names that an agent understands. What a tool takes is what its route takes, as one
//! object; nothing is checked or done here that the route doesn't check and do.

use std::sync::{Arc, LazyLock};

use axum::http::Method;
use rmcp::model::{JsonObject, Tool as Described, ToolAnnotations};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

use crate::gate::Who;
use crate::problem::Problem;
use crate::query::Query;
use crate::routes::{Call, Route, TABLE, Taken};
use crate::server::Server;
use crate::tokens::Role;

/// How a tool comes to what its route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// At once.
    AtOnce,
    /// The run is put into the queue.
    Queued,
    /// By a plan of this act, which is shown and done when a person says so.
    Planned(&'static str),
    /// It does a plan that was shown, when a person says so.
    Executed,
}

/// A tool.
pub(super) struct Tool {
    name: &'static str,
    method: Method,
    path: &'static str,
    pub(super) how: How,
    about: &'static str,
}

const fn look(name: &'static str, path: &'static str, about: &'static str) -> Tool {
    Tool { name, method: Method::GET, path, how: How::AtOnce, about }
}

const fn act(name: &'static str, path: &'static str, how: How, about: &'static str) -> Tool {
    Tool { name, method: Method::POST, path, how, about }
}

const fn planned(name: &'static str, about: &'static str) -> Tool {
    act(name, "/api/plans", How::Planned(name), about)
}

/// All tools.
const TOOLS: &[Tool] = &[
    look("list_runs", "/api/runs", "Lists runs, newest first: workflows, guarded agents, sessions of coding agents."),
    look(
        "show",
        "/api/show",
        "Shows a run, a checkpoint (`RUN@7`, `@`, `@-`), a step (`RUN/step`) or a file in a checkpoint (`REF:path`).",
    ),
    look("log", "/api/log", "Tells what happened in this folder or to a run, or in which checkpoints a path changed."),
    look("status", "/api/files/status", "Tells what changed in this folder since its newest checkpoint."),
    look("diff", "/api/diff/files", "Compares the files of two checkpoints, or of one and the folder as it is."),
    look("diff_runs", "/api/diff/runs", "Compares two runs step by step."),
    look("diff_state", "/api/diff/state", "Compares the state of two checkpoints of runs."),
    look("questions", "/api/runs/{run}/questions", "Tells what a run asks and waits for, with the form of the answer."),
    look("leases", "/api/files/leases", "Tells which files are reserved, and by whom."),
    look("plan_diff", "/api/plans/{id}/diff", "Shows what a plan would change in one file."),
    act("save", "/api/save", How::AtOnce, "Makes a checkpoint of the files of this folder now."),
    act("answer", "/api/runs/{run}/answer", How::AtOnce, "Answers a question that a run asks."),
    act("lease", "/api/files/leases", How::AtOnce, "Reserves files, so that other agents leave them alone."),
    act("release", "/api/files/leases/release", How::AtOnce, "Gives reserved files back."),
    act("submit", "/api/runs", How::Queued, "Puts a workflow document into the queue, for a worker to run."),
    act("stop", "/api/runs/{run}/stop", How::AtOnce, "Stops a run in peace; it can be resumed."),
    act("resume", "/api/runs/{run}/resume", How::AtOnce, "Goes on with a run that was stopped, killed or paused."),
    act(
        "preview",
        "/api/plans",
        How::AtOnce,
        "Shows what an undo, a restore or another act would do, and does nothing.",
    ),
    act("execute", "/api/plans/{id}/execute", How::Executed, "Does a plan that was shown, by its id."),
    planned(
        "undo",
        "Takes back what an agent, a run or a step did to the files, and keeps what the user changed since.",
    ),
    planned("redo", "Takes back the last undo."),
    planned("restore", "Brings files back to a checkpoint, and keeps what the user changed since."),
    planned("cancel", "Gives a run up for good."),
    planned("retry", "Tries a failed run again, from the step that failed or from one that is named."),
];

impl Tool {
    /// The tool of a name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    /// Who may use it.
    pub(super) fn role(&self) -> Role {
        self.route().role.unwrap_or(Role::Operate)
    }

    /// The route that does it.
    pub(super) fn route(&self) -> &'static Route {
        TABLE
            .iter()
            .find(|route| route.path == self.path && route.method == self.method)
            .expect("a test looks for the route of each tool")
    }

    /// What its route is called with.
    pub(super) fn call(&self, server: &Arc<Server>, who: Who, mut given: JsonObject) -> Result<Call, Problem> {
        let route = self.route();
        let mut path = Vec::new();
        for name in parts(route) {
            let value = given.remove(name).ok_or_else(|| Problem::of_field(name, "it is needed"))?;
            path.push((name.to_owned(), text(name, &value)?));
        }
        let mut query = Vec::new();
        for parameter in route.query {
            match given.remove(parameter.name) {
                None | Some(Json::Null) => {}
                Some(Json::Array(several)) => {
                    for value in &several {
                        query.push((parameter.name.to_owned(), text(parameter.name, value)?));
                    }
                }
                Some(value) => query.push((parameter.name.to_owned(), text(parameter.name, &value)?)),
            }
        }
        let query = Query::of(query, route.query)?;
        match self.how {
            How::Planned(act) => drop(given.insert("act".to_owned(), act.into())),
            How::Queued => drop(given.entry("submit").or_insert_with(|| json!({}))),
            How::AtOnce | How::Executed => {}
        }
        let body = match route.takes {
            Taken::Json(_) => Json::Object(given).to_string(),
            Taken::Nothing => match given.keys().next() {
                None => String::new(),
                Some(name) => {
                    return Err(Problem::of_field(name.chars().take(80).collect::<String>(), "it isn't taken"));
                }
            },
        };
        if body.len() > route.most {
            return Err(Problem::of_field("arguments", format!("they have more than {} bytes", route.most)));
        }
        Ok(Call::by(who, Arc::clone(server), path, query, body))
    }

    /// As clients are told of it.
    fn described(&self) -> Described {
        let route = self.route();
        let (mut properties, mut needed) = (Map::new(), Vec::new());
        for name in parts(route) {
            let about = if name == "run" {
                "The run: its name, such as `flow-7`, its id, or how that begins."
            } else {
                "The plan."
            };
            properties.insert(name.to_owned(), json!({ "type": "string", "description": about }));
            needed.push(Json::from(name));
        }
        for parameter in route.query {
            let schema = json!({ "type": parameter.kind, "description": parameter.about });
            properties.insert(parameter.name.to_owned(), schema);
        }
        if let Taken::Json(schema) = route.takes {
            let mut generator =
                SchemaSettings::default().with(|settings| settings.inline_subschemas = true).into_generator();
            let mut taken = schema(&mut generator).to_value();
            if let How::Planned(act) = self.how {
                taken = variant(&taken, act);
            }
            if let Some(Json::Object(fields)) = taken.get_mut("properties").map(Json::take) {
                properties.extend(fields);
            }
            needed.extend(taken["required"].as_array().into_iter().flatten().cloned());
            if let Some(variants) = taken.get("oneOf") {
                let acts: Vec<_> = variants
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|one| one["properties"]["act"]["const"].clone())
                    .collect();
                properties.insert("act".to_owned(), json!({ "enum": acts, "description": "What would be done." }));
                for one in variants.as_array().into_iter().flatten() {
                    let fields = one["properties"].as_object().into_iter().flatten().filter(|(name, _)| *name != "act");
                    for (name, field) in fields {
                        properties.entry(name.clone()).or_insert_with(|| field.clone());
                    }
                }
                needed.push("act".into());
            }
            properties.retain(|name, _| name != "act" || !matches!(self.how, How::Planned(_)));
            needed.retain(|name| name != "act" || !matches!(self.how, How::Planned(_)));
        }
        let schema =
            json!({ "type": "object", "properties": properties, "required": needed, "additionalProperties": false });
        let Json::Object(schema) = schema else { unreachable!("it is an object") };
        let looks = route.act.is_none() || self.name == "preview";
        let destroys = matches!(self.how, How::Planned(_) | How::Executed);
        let hints = ToolAnnotations::new().read_only(looks).destructive(destroys).open_world(false);
        Described::new(self.name, self.about, Arc::new(schema)).annotate(hints)
    }
}

/// The tools that a role may use, as clients are told of them.
pub(super) fn described(role: Role) -> Vec<Described> {
    static ALL: LazyLock<Vec<(Role, Described)>> =
        LazyLock::new(|| TOOLS.iter().map(|tool| (tool.role(), tool.described())).collect());
    ALL.iter().filter(|(needed, _)| *needed <= role).map(|(_, tool)| tool.clone()).collect()
}

/// The names of what a route's path leaves open.
fn parts(route: &'static Route) -> impl Iterator<Item = &'static str> {
    route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// A plain value as text.
fn text(name: &str, value: &Json) -> Result<String, Problem> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Bool(_) | Json::Number(_) => Ok(value.to_string()),
        _ => Err(Problem::of_field(name, "it is a text, a number, or true or false")),
    }
}

/// What is taken for one act of several.
fn variant(taken: &Json, act: &str) -> Json {
    let mut variants = taken["oneOf"].as_array().into_iter().flatten();
    variants.find(|one| one["properties"]["act"]["const"] == act).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_tool_has_its_route_and_says_what_it_takes() {
        let names: BTreeSet<_> = TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names.len(), TOOLS.len());
        for tool in TOOLS {
            let described = tool.described();
            let properties = described.input_schema["properties"].as_object().unwrap();
            for (name, property) in properties {
                let is_told = property["description"].as_str().is_some_and(|about| !about.is_empty());
                assert!(is_told, "{}.{name}: {property}", tool.name);
            }
            if let How::Planned(act) = tool.how {
                assert_eq!((tool.name, properties.get("act")), (act, None));
                let act_exists = variant_exists(act);
                assert!(act_exists, "{act}");
            }
        }
    }

    fn variant_exists(act: &str) -> bool {
        let Taken::Json(schema) = Tool::named("preview").unwrap().route().takes else { return false };
        let mut generator =
            SchemaSettings::default().with(|settings| settings.inline_subschemas = true).into_generator();
        !variant(&schema(&mut generator).to_value(), act).is_null()
    }

    /// Promise 27: a role is offered what it may do, and nothing more.
    #[test]
    fn a_role_is_offered_what_it_may_do() {
        let offered = |role| described(role).into_iter().map(|tool| tool.name.into_owned()).collect::<BTreeSet<_>>();
        let (look, answer, operate) = (offered(Role::Look), offered(Role::Answer), offered(Role::Operate));
        assert!(look.contains("show") && !look.contains("answer") && !look.contains("undo"));
        assert_eq!(answer.difference(&look).collect::<Vec<_>>(), ["answer"]);
        assert_eq!(operate.len(), TOOLS.len());
        for tool in described(Role::Look) {
            assert_eq!(tool.annotations.unwrap().read_only_hint, Some(true), "{}", tool.name);
        }
    }
}
