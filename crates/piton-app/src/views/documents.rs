//! Documents, and cases that test them.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use piton_flow::{Document, Problem, Report, Severity};
use serde::Serialize;
use serde_json::Value as Json;

use super::millis;
use crate::cases::{Counts, Outcome, Verdict};
use crate::failure::Failure;

/// What is wrong with a document, and what it needs.
#[derive(Debug, Clone, Serialize)]
pub struct ValidatedView {
    /// Its file.
    pub file: String,
    /// Whether it can be run.
    pub valid: bool,
    /// How many nodes it has.
    pub nodes: usize,
    /// What keeps it from being run.
    pub errors: Vec<ProblemView>,
    /// What may not be meant.
    pub warnings: Vec<ProblemView>,
    /// What its nodes need of the machine.
    pub needs: Vec<NeedView>,
    /// Errors and warnings in the order of the document.
    #[serde(skip)]
    pub problems: Vec<ProblemView>,
}

/// Something that is wrong.
#[derive(Debug, Clone, Serialize)]
pub struct ProblemView {
    /// Where, as a path into the document.
    pub place: Option<String>,
    /// In which line.
    pub line: Option<usize>,
    /// In which node.
    pub node: Option<String>,
    /// What.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether it keeps the document from being run.
    #[serde(skip)]
    pub is_error: bool,
}

impl From<&Problem> for ProblemView {
    fn from(problem: &Problem) -> Self {
        Self {
            place: Some(problem.place.to_string()),
            line: problem.line,
            node: problem.node.clone(),
            message: problem.message.clone(),
            hint: problem.hint.clone(),
            is_error: problem.severity == Severity::Error,
        }
    }
}

/// What a node needs.
#[derive(Debug, Clone, Serialize)]
pub struct NeedView {
    /// What, with its own fields.
    #[serde(flatten)]
    pub need: Json,
    /// Which node.
    pub node: String,
    /// The same in words.
    #[serde(skip)]
    pub words: String,
}

impl ValidatedView {
    /// What was found of the document at a path.
    pub fn of(path: &Path, report: &Report) -> Self {
        let needs = report.needs.iter().map(|need| NeedView {
            need: serde_json::to_value(&need.need).unwrap_or_default(),
            node: need.node.clone(),
            words: need.need.to_string(),
        });
        Self {
            file: path.display().to_string(),
            valid: report.is_valid(),
            nodes: report.nodes,
            errors: report.errors().map(ProblemView::from).collect(),
            warnings: report.warnings().map(ProblemView::from).collect(),
            needs: needs.collect(),
            problems: report.problems.iter().map(ProblemView::from).collect(),
        }
    }

    /// A file that can't be read, in the place of its report.
    pub fn unread(path: &Path, failure: &Failure) -> Self {
        let problem = ProblemView {
            place: None,
            line: None,
            node: None,
            message: failure.message(),
            hint: failure.advice().map(ToString::to_string),
            is_error: true,
        };
        Self { valid: false, errors: vec![problem], ..Self::of(path, &Report::default()) }
    }
}

/// A document as nodes and edges.
#[derive(Debug, Clone, Serialize)]
pub struct GraphView {
    /// Its nodes.
    pub nodes: Vec<NodeView>,
    /// Its edges.
    pub edges: Vec<EdgeView>,
}

/// A node.
#[derive(Debug, Clone, Serialize)]
pub struct NodeView {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// What is inside it, of a container.
    pub inside: Option<Box<GraphView>>,
}

/// An edge.
#[derive(Debug, Clone, Serialize)]
pub struct EdgeView {
    /// From which node.
    pub source: String,
    /// To which node.
    pub target: String,
    /// By which of its exits.
    pub exit: Option<String>,
}

impl From<&Document> for GraphView {
    fn from(document: &Document) -> Self {
        let nodes = document.nodes.iter().map(|node| NodeView {
            id: node.id.as_str().to_owned(),
            kind: node.kind.clone(),
            title: node.title.clone(),
            inside: node.inside.as_deref().map(|inside| Box::new(Self::from(inside))),
        });
        let edges = document.edges.iter().map(|edge| EdgeView {
            source: edge.source.clone(),
            target: edge.target.clone(),
            exit: edge.source_handle.clone(),
        });
        Self { nodes: nodes.collect(), edges: edges.collect() }
    }
}

/// What became of a case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseView {
    /// Its name.
    pub case: String,
    /// `passed`, `failed` or `unsupported`.
    pub status: &'static str,
    /// What differs, or why it isn't supported.
    pub details: Vec<String>,
    /// How long it took.
    pub duration_ms: u64,
}

impl From<&Outcome> for CaseView {
    fn from(outcome: &Outcome) -> Self {
        let (status, details) = match &outcome.verdict {
            Verdict::Passed => ("passed", Vec::new()),
            Verdict::Failed(differences) => ("failed", differences.clone()),
            Verdict::Unsupported(reason) => ("unsupported", vec![reason.clone()]),
        };
        Self { case: outcome.name.clone(), status, details, duration_ms: millis(outcome.duration) }
    }
}

/// What became of all cases.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CasesView {
    /// How many are as they should be.
    pub passed: usize,
    /// How many aren't.
    pub failed: usize,
    /// How many test what this engine doesn't have.
    pub unsupported: usize,
}

impl CasesView {
    /// Counts outcomes.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let count = |wanted: fn(&Verdict) -> bool| outcomes.iter().filter(|outcome| wanted(&outcome.verdict)).count();
        let passed = count(|verdict| matches!(verdict, Verdict::Passed));
        let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
        Self { passed, failed, unsupported: outcomes.len() - passed - failed }
    }
}

/// How often cases were killed.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct KilledView {
    /// In all.
    pub killed: u64,
    /// In process, on a store in memory.
    pub in_memory: u64,
    /// In process, on SQLite.
    pub on_sqlite: u64,
    /// By SIGKILL, on SQLite.
    pub by_signal: u64,
    /// By SIGKILL, on files.
    pub by_signal_on_files: u64,
    /// Of them also while resuming.
    pub killed_again: u64,
    /// How many finished nodes were skipped.
    pub nodes_skipped: u64,
    /// How many moments the budget had no time for.
    pub left_out: u64,
}

impl From<&Counts> for KilledView {
    fn from(counts: &Counts) -> Self {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            killed: counts.killed(),
            in_memory: count(&counts.memory),
            on_sqlite: count(&counts.sqlite),
            by_signal: count(&counts.signals),
            by_signal_on_files: count(&counts.signals_on_files),
            killed_again: count(&counts.again),
            nodes_skipped: count(&counts.skipped),
            left_out: count(&counts.left_out),
        }
    }
}
