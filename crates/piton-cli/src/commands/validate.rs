//! `piton validate`: everything that is wrong with documents, and what they need.

use std::path::Path;

use piton::{Kinds, Problem, Report, Severity};
use serde_json::{Value as Json, json};

use crate::arguments::Validate;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use piton_app::documents;

pub(crate) async fn execute(session: &Session, arguments: Validate) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for path in &arguments.documents {
        let report = match check(path) {
            Ok(report) => report,
            Err(failure) if arguments.documents.len() == 1 => return Err(failure),
            // The others are looked at all the same.
            Err(failure) => {
                unread(session, path, &failure)?;
                exit = worse(exit, Exit::from(&failure));
                continue;
            }
        };
        if !report.is_valid() {
            exit = worse(exit, Exit::UserFixable);
        }
        if session.output.is_json() {
            session.output.object(&as_json(path, &report))?;
        } else {
            session.output.data(&as_text(path, &report))?;
        }
    }
    Ok(exit)
}

/// Of several files the one that is the most wrong counts.
fn worse(one: Exit, other: Exit) -> Exit {
    if other.code() > one.code() { other } else { one }
}

/// A file that can't be read, in the place of its report.
fn unread(session: &Session, path: &Path, failure: &Failure) -> Result<(), Failure> {
    if session.output.is_json() {
        let mut object = as_json(path, &Report::default());
        object["valid"] = json!(false);
        object["errors"] = json!([{
            "place": null, "line": null, "node": null, "message": failure.message(), "hint": failure.advice(),
        }]);
        return session.output.object(&object);
    }
    let file = clean(&path.display().to_string());
    let mut lines = vec![format!("{file}: error: {}", clean(&failure.message()))];
    if let Some(hint) = failure.advice().map(ToString::to_string) {
        lines.push(format!("  hint: {}", clean(&hint)));
    }
    lines.push(format!("{file}: not valid, 1 error"));
    session.output.data(&lines.join("\n"))
}

fn check(path: &Path) -> Result<Report, Failure> {
    Ok(match documents::read(path)?.and_then(|bundle| bundle.document()) {
        Ok(document) => document.check(&Kinds::builtin()),
        Err(problems) => Report { problems, ..Report::default() },
    })
}

fn as_text(path: &Path, report: &Report) -> String {
    let file = clean(&path.display().to_string());
    let mut lines = Vec::new();
    for problem in report.problems.iter() {
        let word = if problem.severity == Severity::Error { "error" } else { "warning" };
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        let node = problem.node.as_deref().map(|node| format!(" node {node:?}:")).unwrap_or_default();
        let text = clean(&format!("{word}:{node} {}: {}", problem.place, problem.message));
        lines.push(format!("{file}{line}: {text}"));
        if let Some(hint) = &problem.hint {
            lines.push(format!("  hint: {}", clean(hint)));
        }
    }
    // One line for a need, with the nodes that have it.
    let mut needs: Vec<(String, Vec<&str>)> = Vec::new();
    for need in &report.needs {
        let told = need.need.to_string();
        match needs.iter_mut().find(|(other, _)| *other == told) {
            Some((_, nodes)) => nodes.push(&need.node),
            None => needs.push((told, vec![&need.node])),
        }
    }
    for (need, nodes) in needs {
        lines.push(format!("{file}: needs {} (node {})", clean(&need), clean(&nodes.join(", "))));
    }
    let errors = report.errors().count();
    lines.push(if errors == 0 {
        format!("{file}: valid, {} nodes", report.nodes)
    } else {
        format!("{file}: not valid, {errors} {}", if errors == 1 { "error" } else { "errors" })
    });
    lines.join("\n")
}

fn as_json(path: &Path, report: &Report) -> Json {
    let told = |problem: &Problem| {
        json!({
            "place": problem.place.to_string(),
            "line": problem.line,
            "node": problem.node,
            "message": problem.message,
            "hint": problem.hint,
        })
    };
    json!({
        "file": path.display().to_string(),
        "valid": report.is_valid(),
        "nodes": report.nodes,
        "errors": report.errors().map(told).collect::<Vec<_>>(),
        "warnings": report.warnings().map(told).collect::<Vec<_>>(),
        "needs": report.needs.iter().map(|need| {
            let mut object = serde_json::to_value(&need.need).unwrap_or_default();
            if let Json::Object(fields) = &mut object {
                fields.insert("node".to_owned(), json!(need.node));
            }
            object
        }).collect::<Vec<_>>(),
    })
}
