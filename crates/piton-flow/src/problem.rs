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

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The document can't run.
    Error,
    /// It can, but its author may have meant something else.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The line of the text, from 1, if it is known.
    pub line: Option<usize>,
    /// The id of the node that it concerns, if it concerns one.
    pub node: Option<String>,
    /// What.
    pub message: String,
    /// What to do about it, if there is something.
    pub hint: Option<String>,
    /// How bad it is.
    pub severity: Severity,
}

impl Problem {
    fn new(place: Place, message: impl Into<String>) -> Self {
        let line = match place {
            Place::Text { line, .. } => Some(line),
            _ => None,
        };
        Self { place, line, node: None, message: message.into(), hint: None, severity: Severity::Error }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if let (Some(line), Place::Path(_)) = (self.line, &self.place) {
            write!(f, " (line {line})")?;
        }
        match &self.node {
            Some(node) => write!(f, ": node {node:?}: {}", self.message),
            None => write!(f, ": {}", self.message),
        }
    }
}

/// Everything that is wrong; never empty when it is an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(Vec<Problem>);

/// How many problems are kept. A document with more has told enough.
const MAX_PROBLEMS: usize = 1_000;

impl Problems {
    pub(crate) fn one(place: Place, message: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(place, message);
        problems
    }

    pub(crate) fn add(&mut self, place: Place, message: impl Into<String>) {
        self.push(Problem::new(place, message));
    }

    pub(crate) fn add_for(&mut self, node: impl Into<String>, path: Path, message: impl Into<String>) {
        self.push(Problem { node: Some(node.into()), ..Problem::new(Place::Path(path), message) });
    }

    pub(crate) fn warn(&mut self, node: Option<&str>, path: Path, message: impl Into<String>) {
        let node = node.map(str::to_owned);
        self.push(Problem { node, severity: Severity::Warning, ..Problem::new(Place::Path(path), message) });
    }

    /// An error or a warning.
    pub(crate) fn note(&mut self, is_error: bool, node: Option<&str>, path: Path, message: impl Into<String>) {
        self.warn(node, path, message);
        if let Some(last) = self.0.last_mut().filter(|_| is_error) {
            last.severity = Severity::Error;
        }
    }

    /// Says what to do about the problem that was added last.
    pub(crate) fn hint(&mut self, hint: impl Into<String>) {
        if let Some(last) = self.0.last_mut() {
            last.hint = Some(hint.into());
        }
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        if self.0.len() < MAX_PROBLEMS {
            self.0.push(problem);
        }
    }

    pub(crate) fn extend(&mut self, others: impl IntoIterator<Item = Problem>) {
        others.into_iter().for_each(|problem| self.push(problem));
    }

    /// `value` if nothing is wrong.
    pub(crate) fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// These without the warnings.
    #[must_use]
    pub(crate) fn errors(mut self) -> Self {
        self.0.retain(|problem| problem.severity == Severity::Error);
        self
    }

    /// Puts them in the order of the text, as far as their lines are known.
    pub(crate) fn sort(&mut self) {
        self.0.sort_by_key(|problem| problem.line);
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Problem> {
        self.0.iter_mut()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The problems, in the order of the document.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.0.iter()
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
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
