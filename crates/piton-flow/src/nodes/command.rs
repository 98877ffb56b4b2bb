//! `command`: runs a program. Gives `stdout`, `stderr` and `exit_code`.
//!
//! Each argument is a template of its own and stays one argument whatever comes out of it; no shell is
//! involved. The program dies with this process. What it starts in turn may not: that is up to it.

use std::process::Stdio;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{BuildError, Node};
use crate::engine::Host;
use crate::platform;
use crate::pool::{Pool, Selector};
use crate::template::Template;

/// How many bytes a program may write to each of its outputs.
const MAX_OUTPUT: u64 = 16 << 20;

/// The data of a command node.
#[derive(Debug, Deserialize)]
pub(super) struct Data {
    command: Vec<String>,
    #[serde(default)]
    allow_failure: bool,
}

/// A command node.
#[derive(Debug)]
pub(super) struct Command {
    command: Vec<Template>,
    allow_failure: bool,
}

impl Command {
    pub(super) fn build(data: Data) -> Result<Self, BuildError> {
        let path = Path::root().key("command");
        if data.command.first().is_none_or(String::is_empty) {
            return Err(BuildError { path, message: "a program should be here".to_owned() });
        }
        let mut command = Vec::with_capacity(data.command.len());
        for (place, source) in data.command.iter().enumerate() {
            let template = Template::with_references(source);
            command.push(template.map_err(|message| BuildError { path: path.clone().index(place), message })?);
        }
        Ok(Self { command, allow_failure: data.allow_failure })
    }
}

#[async_trait]
impl Node for Command {
    fn inputs(&self, pool: &Pool) -> Result<Value, String> {
        let words: Result<Vec<_>, _> =
            self.command.iter().map(|word| word.render_pool(pool).map(Value::from)).collect();
        Ok(Value::map([("command", Value::List(words?))]))
    }

    async fn run(&self, inputs: &Value, host: &Host<'_>) -> Result<Value, String> {
        let words = inputs.field("command").and_then(Value::as_list).ok_or("its inputs have no command")?;
        let mut words = words.iter().filter_map(Value::as_str);
        let program = words.next().filter(|program| !program.is_empty()).ok_or("the program's name is empty")?;
        let mut command = tokio::process::Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        if let Some(folder) = host.folder {
            command.current_dir(folder);
        }
        let cannot = |error: std::io::Error| format!("{program:?} can't be run: {error}");
        let mut child = platform::spawn(command).await.map_err(cannot)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Both at once: a program that fills one while we read the other would wait for ever.
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        let (stdout, stderr) = (stdout?, stderr?);
        let status = child.wait().await.map_err(cannot)?;
        let exit_code = platform::exit_code(status);
        if exit_code != 0 && !self.allow_failure {
            let said = stderr.as_str().map(str::trim).unwrap_or_default();
            let last = said.lines().next_back().unwrap_or_default();
            let shown: String = last.chars().take(200).collect();
            let colon = if shown.is_empty() { "" } else { ": " };
            return Err(format!("{program:?} ended with {exit_code}{colon}{shown}"));
        }
        Ok(Value::map([("stdout", stdout), ("stderr", stderr), ("exit_code", Value::from(exit_code))]))
    }

    fn selectors(&self) -> Vec<&Selector> {
        self.command.iter().flat_map(Template::references).collect()
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
