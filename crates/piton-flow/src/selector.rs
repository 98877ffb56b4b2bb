//! How a node names a variable: `[node, variable, key, …]`, or `node.variable.key` in a template.

use std::fmt;

use serde::Deserialize;

/// First words of selectors that name no node: system, environment and conversation variables.
pub(crate) const SYSTEM: &str = "sys";
pub(crate) const ENVIRONMENT: &str = "env";
pub(crate) const CONVERSATION: &str = "conversation";

/// A variable, and perhaps a place inside it: `[node, variable, key, …]`.
///
/// The first word is a node's id, `sys`, `env`, `conversation`, or a scope that a container opens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Written")]
pub struct Selector {
    /// The scope: a node's id or one of the reserved words.
    pub node: String,
    /// The variable and what is inside it; never empty.
    pub path: Vec<String>,
}

/// The scope that a container opens for what it gives its nodes.
pub(crate) const SCOPE: &str = "__scope__";

/// A list of words, or one text with dots.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Words(Vec<Word>),
    Text(String),
}

/// YAML reads ids of digits as numbers; they are meant as texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Number(i64),
}

impl TryFrom<Written> for Selector {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        let words = match written {
            Written::Words(words) => words
                .into_iter()
                .map(|word| match word {
                    Word::Text(text) => text,
                    Word::Number(number) => number.to_string(),
                })
                .collect(),
            Written::Text(text) => Self::words(&text)?,
        };
        Self::new(words)
    }
}

/// A variable under another name, as nodes take what they need: `{variable, value_selector}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenMapping")]
pub struct Mapping {
    /// The name.
    pub variable: String,
    /// What it stands for.
    pub selector: Selector,
}

/// The formats spell it both ways, and some documents have both.
#[derive(Deserialize)]
struct WrittenMapping {
    variable: Option<String>,
    name: Option<String>,
    value_selector: Option<Selector>,
    variable_selector: Option<Selector>,
}

impl TryFrom<WrittenMapping> for Mapping {
    type Error = &'static str;

    fn try_from(written: WrittenMapping) -> Result<Self, &'static str> {
        let selector = written.value_selector.or(written.variable_selector).ok_or("a value_selector should be here")?;
        let variable = written.variable.or(written.name).ok_or("missing field `variable`")?;
        Ok(Self { variable, selector })
    }
}

impl Selector {
    /// The selector of these words.
    pub fn new(mut words: Vec<String>) -> Result<Self, &'static str> {
        if words.len() < 2 {
            return Err("a selector is a list of a node's id and one of its variables");
        }
        let node = words.remove(0);
        Ok(Self { node, path: words })
    }

    /// The words of a text such as `node.variable.key`. One word alone is a variable of the container.
    fn words(text: &str) -> Result<Vec<String>, &'static str> {
        let words: Vec<String> = text.trim().split('.').map(str::to_owned).collect();
        match words.as_slice() {
            words if words.iter().any(String::is_empty) => Err("a selector has no empty words"),
            [word] => Ok(vec![SCOPE.to_owned(), word.clone()]),
            _ => Ok(words),
        }
    }

    /// The selector of a variable of a node.
    pub fn of(node: impl Into<String>, variable: impl Into<String>) -> Self {
        Self { node: node.into(), path: vec![variable.into()] }
    }

    /// The name of the variable.
    pub fn variable(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node)?;
        self.path.iter().try_for_each(|word| write!(f, ".{word}"))
    }
}
