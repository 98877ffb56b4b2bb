//! What is wrong with a document or its inputs: all of it at once, each with its place.

use std::fmt;

use piton_types::Path;

/// Where a problem is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Somewhere in the whole.
    Whole,
    /// In the text; both count from 1.
    Text {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// In what the text says.
    Path(Path),
    /// In an input of this name.
    Input(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("document"),
            Self::Text { line, column } => write!(f, "line {line}, column {column}"),
            Self::Path(path) if path.segments().is_empty() => f.write_str("document"),
            Self::Path(path) => path.fmt(f),
            Self::Input(name) => write!(f, "input {name:?}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The id of the node that it concerns, if it concerns one.
    pub node: Option<String>,
    /// What.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{}: node {node:?}: {}", self.place, self.message),
            None => write!(f, "{}: {}", self.place, self.message),
        }
    }
}

/// Everything that is wrong; never empty when it is an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn one(place: Place, message: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(place, message);
        problems
    }

    pub(crate) fn add(&mut self, place: Place, message: impl Into<String>) {
        self.0.push(Problem { place, node: None, message: message.into() });
    }

    pub(crate) fn add_for(&mut self, node: impl Into<String>, path: Path, message: impl Into<String>) {
        self.0.push(Problem { place: Place::Path(path), node: Some(node.into()), message: message.into() });
    }

    /// `value` if nothing is wrong.
    pub(crate) fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// The problems, in the order of the document.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    /// One line per problem, after a first line that says how many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [problem] => problem.fmt(f),
            problems => {
                write!(f, "{} problems", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for Problems {}
