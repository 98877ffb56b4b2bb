//! `command`: runs a program. Gives `stdout`, `stderr` and `exit_code`.
//!
//! Each argument is a template of its own and stays one argument whatever comes out of it; no shell is
//! involved. The program dies with this process. What it started dies with it when it ends, is stopped or takes too
//! long, or this process is killed, as far as it is of its process group; only in a sandbox does nothing outlive it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use piton_process::{Job, ProcessError, run};
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Node, NodeContext, NodeError, NodeOutput};
use crate::outside::{AuditKind, Outside, SecurityLevel};
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::template::Template;

/// How many bytes a program may write to each of its outputs.
const MAX_OUTPUT: u64 = 16 << 20;

/// Where a program in a sandbox finds others: our own search path may lead to what it isn't given.
const SANDBOX_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The variable that tells a program the key of its run, by which it can recognise a repetition.
const KEY: &str = "PITON_IDEMPOTENCY_KEY";

#[derive(Debug, Deserialize)]
struct Data {
    /// The program and its arguments, each a template of its own.
    command: Vec<String>,
    /// The node goes on with any exit code.
    #[serde(default)]
    allow_failure: bool,
    /// Variables for it; templates.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Where it runs, below the folder of the run.
    cwd: Option<String>,
    /// What it reads; a template.
    stdin: Option<String>,
}

#[derive(Debug)]
struct Command {
    /// As it is written, for the report of needs.
    program: String,
    command: Vec<Template>,
    allow_failure: bool,
    env: Vec<(String, Template)>,
    cwd: Option<Template>,
    stdin: Option<Template>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let path = Path::root().key("command");
    if data.command.first().is_none_or(String::is_empty) {
        return Err(Faults::one(path, "a program should be here"));
    }
    let mut faults = Faults::default();
    let mut template = |path: Path, source: &str| faults.keep(build.template(source, path));
    let command =
        data.command.iter().enumerate().filter_map(|(n, word)| template(path.clone().index(n), word)).collect();
    let env = Path::root().key("env");
    let env = data.env.iter().filter_map(|(name, value)| Some((name.clone(), template(env.clone().key(name), value)?)));
    let env = env.collect();
    let cwd = data.cwd.and_then(|folder| template(Path::root().key("cwd"), &folder));
    let stdin = data.stdin.and_then(|text| template(Path::root().key("stdin"), &text));
    let program = data.command.into_iter().next().unwrap_or_default();
    faults.none_or(Box::new(Command { program, command, allow_failure: data.allow_failure, env, cwd, stdin }))
}

#[async_trait]
impl Node for Command {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let render = |template: &Template| template.render_pool(variables).map(Value::from);
        let words: Result<Vec<_>, _> = self.command.iter().map(render).collect();
        let mut inputs = BTreeMap::from([("command".to_owned(), Value::List(words?))]);
        if !self.env.is_empty() {
            let env: Result<BTreeMap<_, _>, String> =
                self.env.iter().map(|(name, value)| Ok((name.clone(), render(value)?))).collect();
            inputs.insert("env".to_owned(), Value::Map(env?));
        }
        for (name, template) in [("cwd", &self.cwd), ("stdin", &self.stdin)] {
            if let Some(template) = template {
                inputs.insert(name.to_owned(), render(template)?);
            }
        }
        Ok(Value::Map(inputs))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        // Without a service that guards the outside, the program that embeds the engine guards it.
        match context.services().get::<Outside>() {
            Some(outside) => outside.guard(context, self.start(inputs, context, Some(outside))).await,
            None => self.start(inputs, context, None).await,
        }
    }

    fn gives(&self) -> Option<Vec<&str>> {
        Some(vec!["stdout", "stderr", "exit_code"])
    }

    fn references(&self) -> Vec<&Selector> {
        let env = self.env.iter().map(|(_, value)| value);
        let templates = self.command.iter().chain(env).chain(&self.cwd).chain(&self.stdin);
        templates.flat_map(Template::references).collect()
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Command { program: self.program.clone() }]
    }
}

impl Command {
    async fn start(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: Option<&Outside>,
    ) -> Result<NodeOutput, NodeError> {
        let words = inputs.field("command").and_then(Value::as_list).ok_or("its inputs have no command")?;
        let words: Vec<String> = words.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let program = words.first().filter(|program| !program.is_empty()).ok_or("the program's name is empty")?;
        let text = |name: &str| inputs.field(name).and_then(Value::as_str);
        let mut job = Job::new(program).arguments(&words[1..]);
        let env = inputs.field("env").and_then(Value::as_map).into_iter().flatten();
        job.environment = env.filter_map(|(name, value)| Some((name.into(), value.as_str()?.into()))).collect();
        if let Some(key) = context.next_key() {
            job.environment.entry(KEY.into()).or_insert_with(|| key.into());
        }
        job.folder = match (context.folder(), text("cwd")) {
            (Some(folder), Some(inside)) => Some(folder.join(inside)),
            (None, Some(inside)) => Some(inside.into()),
            (folder, None) => folder.map(ToOwned::to_owned),
        };
        job.input = text("stdin").unwrap_or_default().as_bytes().to_vec();
        job.limits.output = MAX_OUTPUT;
        if let Some(outside) = outside {
            if outside.level() == SecurityLevel::Strict {
                let message = format!("at Strict no program is run, so {program:?} isn't");
                return Err(NodeError::new("Refused", message));
            }
            outside.record(context, AuditKind::Command, program)?;
            job.sandbox.clone_from(&outside.command_sandbox);
            job.withheld = outside.withheld.iter().map(Into::into).collect();
            if job.sandbox.is_some() {
                job.environment.entry("PATH".into()).or_insert_with(|| SANDBOX_PATH.into());
            }
        }
        let ended = match outside.and_then(|outside| outside.programs.as_ref()) {
            Some(programs) => programs.run(&words).await?,
            None => run(job).await.map_err(|error| match error {
                ProcessError::Start { source, .. } => format!("{program:?} can't be run: {source}"),
                other => other.to_string(),
            })?,
        };
        let exit_code = ended.exit_code;
        let value = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::from)
        };
        let (stdout, stderr) = (value(ended.stdout), value(ended.stderr));
        if exit_code != 0 && !self.allow_failure {
            let said = stderr.as_str().map(str::trim).unwrap_or_default();
            let last = said.lines().next_back().unwrap_or_default();
            let colon = if last.is_empty() { "" } else { ": " };
            let message = format!("{program:?} ended with {exit_code}{colon}{last}");
            return Err(NodeError::passing("CommandError", message));
        }
        Ok(NodeOutput::of([("stdout", stdout), ("stderr", stderr), ("exit_code", Value::from(exit_code))]))
    }
}
