//! What a model is told: the messages of a document, with memory, context and pictures.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use piton_model::chat::{Content, Message, Role};
use piton_types::{Path, Value};
use serde::Deserialize;

use super::files::address;
use crate::kind::{Build, Faults, read};
use crate::node::NodeError;
use crate::pool::VariablePool;
use crate::reply::Reply;
use crate::selector::{SYSTEM, Selector};
use crate::template::Template;
use crate::value::to_text;

/// What a prompt says for the context of an export.
const CONTEXT: &str = "{{#context#}}";

#[derive(Debug, Deserialize)]
struct MessageData {
    /// `system`, `user` (if nothing is said) or `assistant`.
    #[serde(default)]
    role: Option<String>,
    /// The text, with variables as `{{#NODE.NAME#}}`.
    #[serde(default)]
    text: String,
    /// `jinja2` if `jinja2_text` is the text.
    #[serde(default)]
    edition_type: Option<String>,
    /// A Jinja template, with the names of `prompt_config`.
    #[serde(default)]
    jinja2_text: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct PromptConfig {
    /// The names that Jinja templates may use.
    #[serde(default)]
    jinja2_variables: Option<Vec<Variable>>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    /// The name.
    variable: String,
    /// Where its value is.
    value_selector: Selector,
}

#[derive(Debug, Default, Deserialize)]
struct Switch {
    /// Whether it counts.
    #[serde(default)]
    enabled: bool,
    /// What is put where a text says `{{#context#}}`, or behind the rules.
    #[serde(default)]
    variable_selector: Option<Vec<String>>,
}

/// Earlier messages: of a variable that has them, or those that the conversation was started with.
#[derive(Debug, Default, Deserialize)]
struct MemoryData {
    /// Whether it counts.
    enabled: Option<bool>,
    /// A list of messages; those of the conversation if nothing is said.
    variable_selector: Option<Vec<String>>,
    /// How many of the newest are taken along.
    window_size: Option<usize>,
    /// The same, in an export.
    window: Option<Window>,
    /// What the user says now, in an export.
    query_prompt_template: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Window {
    /// Whether it counts.
    #[serde(default)]
    enabled: bool,
    /// How many.
    #[serde(default)]
    size: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
struct VisionData {
    /// Whether it counts.
    #[serde(default)]
    enabled: bool,
    /// The pictures.
    variable_selector: Option<Vec<String>>,
    /// `low` or `high`.
    detail: Option<String>,
    /// The same, in an export.
    #[serde(default)]
    configs: Option<VisionConfig>,
}

#[derive(Debug, Default, Deserialize)]
struct VisionConfig {
    /// The pictures.
    variable_selector: Option<Vec<String>>,
    /// `low` or `high`.
    detail: Option<String>,
}

#[derive(Debug)]
enum Text {
    Plain(Reply),
    Jinja(Template),
}

/// The messages of a document.
#[derive(Debug)]
pub(super) struct Prompt {
    messages: Vec<(Role, Text)>,
    jinja: Vec<Variable>,
    /// Put at the end of the rules, if no message has a place for it.
    context: Option<Selector>,
    memory: Option<Memory>,
    pictures: Option<Pictures>,
}

/// Pictures that a model is shown.
#[derive(Debug)]
pub(super) struct Pictures {
    selector: Selector,
    detail: Option<String>,
}

/// Earlier messages of a conversation.
#[derive(Debug)]
pub(super) struct Memory {
    selector: Selector,
    window: Option<usize>,
    /// What the user says now, in an export.
    query: Option<Reply>,
}

impl Prompt {
    /// Reads `prompt_template`, `prompt_config`, `context`, `memory` and `vision` of a node.
    pub(super) fn read(build: &Build<'_>) -> Result<Self, Faults> {
        let data = &build.spec.data;
        let mut faults = Faults::default();
        let config: Option<PromptConfig> = faults.keep(field(data, "prompt_config")).flatten();
        let context: Option<Switch> = faults.keep(field(data, "context")).flatten();
        let context = context.filter(|switch| switch.enabled);
        let context = context.and_then(|switch| Selector::new(switch.variable_selector?).ok());
        let at = Path::root().key("prompt_template");
        let sources: Vec<(Path, MessageData)> = match data.field("prompt_template") {
            Some(Value::List(items)) => items
                .iter()
                .enumerate()
                .filter_map(|(n, item)| {
                    Some((at.clone().index(n), faults.keep(read(item.clone(), &at.clone().index(n)))?))
                })
                .collect(),
            // The one text of a model that completes.
            Some(map @ Value::Map(_)) => {
                faults.keep(read(map.clone(), &at)).map(|message| (at.clone(), message)).into_iter().collect()
            }
            Some(Value::String(text)) => {
                let message = MessageData { role: None, text: text.clone(), edition_type: None, jinja2_text: None };
                vec![(at.clone(), message)]
            }
            _ => Vec::new(),
        };
        let place = context.as_ref().map(|selector| format!("{{{{#{selector}#}}}}")).unwrap_or_default();
        let mut has_place = false;
        let mut messages = Vec::new();
        for (at, message) in sources {
            let role = match message.role.as_deref().map(str::to_lowercase).as_deref() {
                None | Some("user" | "") => Role::User,
                Some("system") => Role::System,
                Some("assistant") => Role::Assistant,
                Some(other) => {
                    faults.add(at.key("role"), format!("Unsupported role: {other}"));
                    continue;
                }
            };
            if message.edition_type.as_deref() == Some("jinja2") {
                let source = message.jinja2_text.unwrap_or(message.text);
                match Template::jinja(&source, build.functions()) {
                    Ok(template) => messages.push((role, Text::Jinja(template))),
                    Err(error) => faults.add(at.key("jinja2_text"), error),
                }
            } else {
                has_place |= message.text.contains(CONTEXT);
                messages.push((role, Text::Plain(Reply::parse(&message.text.replace(CONTEXT, &place)))));
            }
        }
        let memory = faults.keep(Memory::read(data)).flatten();
        let pictures = faults.keep(Pictures::read(data)).flatten();
        let jinja = config.and_then(|config| config.jinja2_variables).unwrap_or_default();
        faults.none_or(Self { messages, jinja, context: context.filter(|_| !has_place), memory, pictures })
    }

    /// The messages, with the variables as they are.
    pub(super) fn render(&self, pool: &VariablePool) -> Result<Vec<Message>, NodeError> {
        let named: BTreeMap<String, Value> =
            self.jinja.iter().map(|from| (from.variable.clone(), pool.select(&from.value_selector))).collect();
        let mut messages = Vec::new();
        for (role, text) in &self.messages {
            let text = match text {
                Text::Plain(reply) => reply.render(pool),
                Text::Jinja(template) => {
                    template.render(&named).map_err(|message| NodeError::new("TemplateError", message))?
                }
            };
            messages.push(Message::text(*role, text));
        }
        if let Some(context) = self.context.as_ref().map(|selector| to_text(&pool.select(selector)))
            && !context.is_empty()
        {
            match messages.iter_mut().find(|message| message.role == Role::System) {
                Some(rules) => rules.content.push(Content::Text { text: format!("\n{context}") }),
                None => messages.insert(0, Message::text(Role::System, context)),
            }
        }
        if let Some(memory) = &self.memory {
            memory.put(&mut messages, pool);
        }
        if let Some(pictures) = &self.pictures {
            pictures.show(&mut messages, pool);
        }
        Ok(messages)
    }

    /// What the document names. The files of a conversation and its history need not be there.
    pub(super) fn references(&self) -> Vec<&Selector> {
        let texts = self.messages.iter().filter_map(|(_, text)| match text {
            Text::Plain(reply) => Some(reply),
            Text::Jinja(_) => None,
        });
        let mut references: Vec<&Selector> = texts.flat_map(Reply::references).collect();
        references.extend(self.jinja.iter().map(|from| &from.value_selector));
        references.extend(&self.context);
        references.extend(self.pictures.iter().flat_map(Pictures::references));
        references
    }
}

impl Memory {
    /// Reads `memory` of a node.
    pub(super) fn read(data: &Value) -> Result<Option<Self>, Faults> {
        let Some(memory): Option<MemoryData> = field(data, "memory")? else { return Ok(None) };
        if memory.enabled == Some(false) {
            return Ok(None);
        }
        let selector = memory.variable_selector.and_then(|words| Selector::new(words).ok());
        let window = memory.window.as_ref().filter(|window| window.enabled).and_then(|window| window.size);
        // Of the conversation itself an export counts turns, each of a question and its answer.
        let window = window.map(|size| if selector.is_none() { size.saturating_mul(2) } else { size });
        // An export means the conversation itself; what the user says now then comes last.
        let query = selector.is_none().then(|| {
            let query = memory.query_prompt_template.filter(|text| !text.trim().is_empty());
            Reply::parse(query.as_deref().unwrap_or("{{#sys.query#}}"))
        });
        let selector = selector.unwrap_or_else(|| Selector::of(SYSTEM, "history"));
        Ok(Some(Self { selector, window: memory.window_size.or(window), query }))
    }

    /// The earlier messages, as many as are wanted.
    pub(super) fn earlier(&self, pool: &VariablePool) -> Vec<Message> {
        let value = pool.select(&self.selector);
        let mut earlier: Vec<Message> = value.as_list().unwrap_or_default().iter().filter_map(earlier).collect();
        if let Some(window) = self.window {
            let surplus = earlier.len().saturating_sub(window);
            earlier.drain(..surplus);
        }
        earlier
    }

    /// Puts the earlier messages where the format wants them: an export has them behind all of its own, and then what
    /// the user says now; otherwise they come behind the rules.
    fn put(&self, messages: &mut Vec<Message>, pool: &VariablePool) {
        let earlier = self.earlier(pool);
        let Some(query) = &self.query else {
            let rules = messages.iter().take_while(|message| message.role == Role::System).count();
            messages.splice(rules..rules, earlier);
            return;
        };
        messages.extend(earlier);
        let query = query.render(pool);
        if !query.is_empty() {
            messages.push(Message::text(Role::User, query));
        }
    }
}

fn earlier(value: &Value) -> Option<Message> {
    let role = match value.field("role")?.as_str()? {
        "system" => Role::System,
        "assistant" => Role::Assistant,
        _ => Role::User,
    };
    let text = value.field("content").or_else(|| value.field("text"))?;
    Some(Message::text(role, to_text(text)))
}

impl Pictures {
    /// Reads `vision` of a node.
    pub(super) fn read(data: &Value) -> Result<Option<Self>, Faults> {
        let Some(vision): Option<VisionData> = field(data, "vision")? else { return Ok(None) };
        if !vision.enabled {
            return Ok(None);
        }
        let configs = vision.configs.unwrap_or_default();
        let selector = vision.variable_selector.or(configs.variable_selector);
        let selector = selector.and_then(|words| Selector::new(words).ok());
        let selector = selector.unwrap_or_else(|| Selector::of(SYSTEM, "files"));
        Ok(Some(Self { selector, detail: vision.detail.or(configs.detail) }))
    }

    /// Adds them to what the user says last.
    pub(super) fn show(&self, messages: &mut Vec<Message>, pool: &VariablePool) {
        let image = |url| Content::Image { url, detail: self.detail.clone() };
        let images: Vec<Content> = picture_urls(&pool.select(&self.selector)).into_iter().map(image).collect();
        if images.is_empty() {
            return;
        }
        match messages.last_mut() {
            Some(last) if last.role == Role::User => last.content.extend(images),
            _ => messages.push(Message { role: Role::User, content: images }),
        }
    }

    /// What the document names. The files of a conversation need not be there.
    pub(super) fn references(&self) -> Option<&Selector> {
        Some(&self.selector).filter(|selector| selector.node != SYSTEM)
    }
}

/// Addresses of pictures, or the pictures themselves as addresses.
fn picture_urls(value: &Value) -> Vec<String> {
    match value {
        Value::String(url) if !url.is_empty() => vec![url.clone()],
        Value::List(items) => items.iter().flat_map(picture_urls).collect(),
        Value::Map(_) => {
            let kind = value.field("mime_type").and_then(Value::as_str).unwrap_or("image/png");
            match value.field("content") {
                Some(Value::Bytes(content)) => vec![format!("data:{kind};base64,{}", STANDARD.encode(content))],
                _ => address(value).map(str::to_owned).into_iter().collect(),
            }
        }
        _ => Vec::new(),
    }
}

fn field<T: serde::de::DeserializeOwned>(data: &Value, key: &str) -> Result<Option<T>, Faults> {
    match data.field(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value.clone(), &Path::root().key(key)).map(Some),
    }
}
