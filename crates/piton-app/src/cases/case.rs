//! What a case is made of, as its files say it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use piton_flow::{Bundle, Document, Format, Problems};
use piton_types::{Value, from_json, from_value};
use serde::Deserialize;

use super::acts::Acts;
use super::script::Script;
use crate::documents::Beside;

/// The largest file of a case.
const MAX_FILE: u64 = 64 << 20;

/// A case.
#[derive(Debug)]
pub struct Case {
    /// The name of its folder.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// The document as it is written.
    pub(crate) text: String,
    pub(crate) format: Format,
    pub(crate) document: Result<Document, Problems>,
    pub(crate) inputs: BTreeMap<String, Value>,
    pub(crate) state: State,
    pub(crate) expected: Expected,
    /// It has a script for the debugger.
    pub(crate) debug: Option<Script>,
    /// It is played in several acts.
    pub(crate) acts: Option<Acts>,
    /// Whether it may run programs and use the network for real.
    pub(crate) outside: bool,
}

/// The world around the document.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) system_variables: BTreeMap<String, Value>,
    pub(crate) environment_variables: BTreeMap<String, Value>,
    pub(crate) conversation_variables: BTreeMap<String, Value>,
    pub(crate) fake_time: Option<FakeTime>,
    pub(crate) fake_id: Option<FakeId>,
    pub(crate) mock_server: Vec<MockAnswer>,
    pub(crate) llm_providers: BTreeMap<String, MockProvider>,
    pub(crate) mock_mcp_servers: Vec<MockTools>,
    pub(crate) mock_commands: Vec<MockCommand>,
    /// Plugins of another engine.
    pub(crate) plugin_system: Value,
    /// Answers to the questions of human-input nodes, by node.
    pub(crate) answers: BTreeMap<String, Value>,
}

/// Limits.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) max_steps: Option<u64>,
    pub(crate) max_execution_time_secs: Option<u64>,
    pub(crate) strict_template: bool,
    pub(crate) max_concurrency: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FakeTime {
    pub(crate) fixed_timestamp: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FakeId {
    #[serde(default)]
    pub(crate) prefix: String,
}

/// An answer of the HTTP server.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MockAnswer {
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default = "ok")]
    pub(crate) response_status: u16,
    #[serde(default)]
    pub(crate) response_headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) response_body: String,
    #[serde(default)]
    pub(crate) match_headers: BTreeMap<String, String>,
    pub(crate) match_body: Option<String>,
    /// How often it is given; then the next that fits is.
    pub(crate) expect: Option<u64>,
    /// How long it takes.
    #[serde(default)]
    pub(crate) delay_ms: u64,
}

impl MockAnswer {
    /// Whether it is wanted for the same requests.
    pub(crate) fn fits_like(&self, other: &Self) -> bool {
        self.method.eq_ignore_ascii_case(&other.method)
            && (&self.path, &self.match_headers, &self.match_body)
                == (&other.path, &other.match_headers, &other.match_body)
    }
}

const fn ok() -> u16 {
    200
}

/// A provider of models, answered by the HTTP server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MockProvider {
    pub(crate) api_key: String,
    pub(crate) default_model: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) org_id: Option<String>,
}

/// What a program comes to.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MockCommand {
    /// The first words of the command, or all of them.
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) stdout: String,
    #[serde(default)]
    pub(crate) stderr: String,
    #[serde(default)]
    pub(crate) exit_code: i32,
    /// How long it takes.
    #[serde(default)]
    pub(crate) delay_ms: u64,
}

/// An MCP server with one tool.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MockTools {
    #[serde(default)]
    pub(crate) config: MockServer,
    #[serde(default = "search")]
    pub(crate) tool_name: String,
    #[serde(default)]
    pub(crate) tool_description: String,
    #[serde(default)]
    pub(crate) tool_input_schema: Value,
    #[serde(default)]
    pub(crate) tool_result: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct MockServer {
    #[serde(default)]
    pub(crate) name: String,
}

fn search() -> String {
    "search".to_owned()
}

/// What should come out.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Expected {
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) outputs: BTreeMap<String, Value>,
    /// JSON that is merged into the outputs; TOML has no null.
    pub(crate) outputs_json: Option<String>,
    /// Only the listed outputs count.
    #[serde(default)]
    pub(crate) partial_match: bool,
    pub(crate) error_contains: Option<String>,
}

impl Case {
    /// Reads a case. What is wrong with its files is a text; what is wrong with its document is part of
    /// what it tests. With `outside`, it may run programs and use the network for real.
    pub fn load(folder: &Path, outside: bool) -> Result<Self, String> {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (text, format) = file(folder, "workflow")?.ok_or("there is no workflow.toml, .yml or .json")?;
        let mut expected: Expected = read(folder, "out")?.ok_or("there is no out.toml, .yml or .json")?;
        if let Some(json) = &expected.outputs_json {
            match from_json(json.as_bytes()) {
                Ok(Value::Map(more)) => expected.outputs.extend(more),
                _ => return Err("out: outputs_json should be a JSON object".to_owned()),
            }
        }
        Ok(Self {
            name,
            folder: folder.to_owned(),
            document: Bundle::read(&text, format, &Beside::of(&folder.join("workflow")))
                .and_then(|bundle| bundle.document()),
            text,
            format,
            inputs: read(folder, "in")?.unwrap_or_default(),
            state: read(folder, "state")?.unwrap_or_default(),
            expected,
            debug: read(folder, "debug")?,
            acts: read(folder, "acts")?,
            outside,
        })
    }
}

/// The text of the file of this name, in whichever format it is.
fn file(folder: &Path, name: &str) -> Result<Option<(String, Format)>, String> {
    for ending in ["toml", "yml", "yaml", "json"] {
        let path = folder.join(format!("{name}.{ending}"));
        match std::fs::metadata(&path) {
            Ok(found) if found.len() > MAX_FILE => return Err(format!("{name}.{ending} is too large")),
            Ok(_) => {
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}.{ending}: {error}"))?;
                let format = Format::of_file_name(ending).or_else(|| Format::of_file_name(&format!("x.{ending}")));
                return Ok(format.map(|format| (text, format)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{name}.{ending}: {error}")),
        }
    }
    Ok(None)
}

fn read<T: serde::de::DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>, String> {
    let Some((text, format)) = file(folder, name)? else { return Ok(None) };
    if text.trim().is_empty() {
        return Ok(None);
    }
    let value = format.read(&text).map_err(|problems| format!("{name}: {problems}"))?;
    // A file of comments only is one that says nothing.
    if value == Value::Null {
        return Ok(None);
    }
    from_value(value).map(Some).map_err(|error| format!("{name}: {error}"))
}

/// The cases at a path: the folder itself, or those in it, by name.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, String> {
    let is_case = |folder: &Path| {
        file(folder, "workflow").is_ok_and(|found| found.is_some())
            && file(folder, "out").is_ok_and(|found| found.is_some())
    };
    if !path.is_dir() {
        return Err("it is no folder".to_owned());
    }
    if is_case(path) {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| error.to_string())? {
            let entry = entry.map_err(|error| error.to_string())?;
            // Links are left alone: they may lead in a circle.
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if is_case(&entry.path()) {
                found.push(entry.path());
            } else {
                folders.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
