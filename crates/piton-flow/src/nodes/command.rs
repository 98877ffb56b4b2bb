//! `command`: runs a program. Gives `stdout`, `stderr` and `exit_code`.
//!
//! Each argument is a template of its own and stays one argument whatever comes out of it; no shell is
//! involved. The program dies with this process. What it starts in turn may not: that is up to it.

use std::collections::BTreeMap;
use std::process::Stdio;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Node, NodeContext, NodeError, NodeOutput};
use crate::platform;
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::template::Template;

/// How many bytes a program may write to each of its outputs.
const MAX_OUTPUT: u64 = 16 << 20;

#[derive(Debug, Deserialize)]
struct Data {
    command: Vec<String>,
    #[serde(default)]
    allow_failure: bool,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
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
    let mut template = |path: Path, source: &str| {
        let template = Template::with_references(source).map_err(|message| Faults::one(path, message));
        faults.keep(template)
    };
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
        let words = inputs.field("command").and_then(Value::as_list).ok_or("its inputs have no command")?;
        let mut words = words.iter().filter_map(Value::as_str);
        let program = words.next().filter(|program| !program.is_empty()).ok_or("the program's name is empty")?;
        let text = |name: &str| inputs.field(name).and_then(Value::as_str);
        let mut command = tokio::process::Command::new(program);
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        let env = inputs.field("env").and_then(Value::as_map).into_iter().flatten();
        command.envs(env.filter_map(|(name, value)| Some((name, value.as_str()?))));
        let folder = match (context.folder(), text("cwd")) {
            (Some(folder), Some(inside)) => Some(folder.join(inside)),
            (None, Some(inside)) => Some(inside.into()),
            (folder, None) => folder.map(ToOwned::to_owned),
        };
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        let cannot = |error: std::io::Error| format!("{program:?} can't be run: {error}");
        let mut child = platform::spawn(command).await.map_err(cannot)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // All at once: a program that fills one while we wait for the other would wait for ever.
        let (stdout, stderr, ()) = tokio::join!(read(stdout), read(stderr), write(child.stdin.take(), text("stdin")));
        let (stdout, stderr) = (stdout?, stderr?);
        let status = child.wait().await.map_err(cannot)?;
        let exit_code = platform::exit_code(status);
        if exit_code != 0 && !self.allow_failure {
            let said = stderr.as_str().map(str::trim).unwrap_or_default();
            let last = said.lines().next_back().unwrap_or_default();
            let shown: String = last.chars().take(200).collect();
            let colon = if shown.is_empty() { "" } else { ": " };
            let message = format!("{program:?} ended with {exit_code}{colon}{shown}");
            return Err(NodeError::passing("CommandError", message));
        }
        Ok(NodeOutput::of([("stdout", stdout), ("stderr", stderr), ("exit_code", Value::from(exit_code))]))
    }

    fn references(&self) -> Vec<&Selector> {
        let env = self.env.iter().map(|(_, value)| value);
        let templates = self.command.iter().chain(env).chain(&self.cwd).chain(&self.stdin);
        templates.flat_map(Template::references).collect()
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Command { program: self.program.clone() }]
    }

    fn variables(&self) -> Option<Vec<&str>> {
        Some(vec!["stdout", "stderr", "exit_code"])
    }
}

/// All of the input. A program that doesn't want it needn't read it.
async fn write(input: Option<tokio::process::ChildStdin>, text: Option<&str>) {
    if let (Some(mut input), Some(text)) = (input, text) {
        let _ = input.write_all(text.as_bytes()).await;
    }
}

/// All of an output: text, or bytes if it isn't.
async fn read(output: Option<impl AsyncRead + Unpin>) -> Result<Value, String> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        let mut bounded = output.take(MAX_OUTPUT + 1);
        bounded.read_to_end(&mut bytes).await.map_err(|error| format!("its output can't be read: {error}"))?;
    }
    if bytes.len() as u64 > MAX_OUTPUT {
        return Err(format!("it wrote more than {MAX_OUTPUT} bytes"));
    }
    Ok(String::from_utf8(bytes).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::from))
}
