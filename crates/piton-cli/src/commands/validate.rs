//! `piton validate`: everything that is wrong with documents, and what they need.

use piton_app::documents::validate;
use piton_app::views::documents::ValidatedView;

use crate::arguments::Validate;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: Validate) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for path in &arguments.documents {
        let (view, text) = match validate(path) {
            Ok(view) => {
                if !view.valid {
                    exit = worse(exit, Exit::UserFixable);
                }
                let text = report_text(&view);
                (view, text)
            }
            Err(failure) if arguments.documents.len() == 1 => return Err(failure),
            // The others are looked at all the same.
            Err(failure) => {
                exit = worse(exit, Exit::from(&failure));
                let view = ValidatedView::unread(path, &failure);
                let text = unread_text(&view);
                (view, text)
            }
        };
        match session.output.is_json() {
            true => session.output.view(&view)?,
            false => session.output.data(&text)?,
        }
    }
    Ok(exit)
}

/// Of several files the one that is the most wrong counts.
fn worse(one: Exit, other: Exit) -> Exit {
    if other.code() > one.code() { other } else { one }
}

/// A file that can't be read, in the place of its report.
fn unread_text(view: &ValidatedView) -> String {
    let file = clean(&view.file);
    let mut lines = Vec::new();
    for error in &view.errors {
        lines.push(format!("{file}: error: {}", clean(&error.message)));
        lines.extend(error.hint.as_ref().map(|hint| format!("  hint: {}", clean(hint))));
    }
    lines.push(format!("{file}: not valid, 1 error"));
    lines.join("\n")
}

fn report_text(view: &ValidatedView) -> String {
    let file = clean(&view.file);
    let mut lines = Vec::new();
    for problem in &view.problems {
        let word = if problem.is_error { "error" } else { "warning" };
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        let node = problem.node.as_deref().map(|node| format!(" node {node:?}:")).unwrap_or_default();
        let place = problem.place.as_deref().unwrap_or_default();
        let text = clean(&format!("{word}:{node} {place}: {}", problem.message));
        lines.push(format!("{file}{line}: {text}"));
        lines.extend(problem.hint.as_ref().map(|hint| format!("  hint: {}", clean(hint))));
    }
    // One line for a need, with the nodes that have it.
    let mut needs: Vec<(&str, Vec<&str>)> = Vec::new();
    for need in &view.needs {
        match needs.iter_mut().find(|(other, _)| *other == need.words) {
            Some((_, nodes)) => nodes.push(&need.node),
            None => needs.push((&need.words, vec![&need.node])),
        }
    }
    for (need, nodes) in needs {
        lines.push(format!("{file}: needs {} (node {})", clean(need), clean(&nodes.join(", "))));
    }
    let errors = view.errors.len();
    lines.push(if errors == 0 {
        format!("{file}: valid, {} nodes", view.nodes)
    } else {
        format!("{file}: not valid, {errors} {}", if errors == 1 { "error" } else { "errors" })
    });
    lines.join("\n")
}
