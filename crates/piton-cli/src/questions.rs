//! The questions of a run, for people and programs.

use piton::OpenQuestion;
use piton_types::{RunId, Value};
use serde_json::json;

use crate::output::{Output, clean};
use crate::view;

/// Shows what a run waits for, and how to answer.
pub(crate) fn show(output: &Output, run: &RunId, questions: &[OpenQuestion]) {
    output.note(&match questions.len() {
        1 => format!("run {run} waits for an answer"),
        many => format!("run {run} waits for {many} answers"),
    });
    for question in questions {
        output.note(&format!("  {}: {}", clean(question.step.as_str()), clean(&question.prompt)));
        for line in lines(question) {
            output.note(&format!("    {line}"));
        }
        let node =
            if questions.len() > 1 { format!(" --node {}", clean(question.step.as_str())) } else { String::new() };
        output.note(&format!("  `piton answer {run}{node}{}` answers", example(question)));
    }
    output.note(&format!("then `piton resume {run}` goes on"));
}

/// The fields of a question, what was wrong with the last answer, and when it ends.
pub(crate) fn lines(question: &OpenQuestion) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(form) = &question.form else { return lines };
    if let Some(problem) = &form.problem {
        lines.push(clean(&format!("the last answer was refused: {problem}")));
    }
    for field in &form.fields {
        let mut line = format!("{} ({}", field.name, field.kind);
        if field.required {
            line.push_str(", required");
        }
        if !field.options.is_empty() {
            let options: Vec<_> = field.options.iter().map(view::value_text).collect();
            line.push_str(&format!(", one of {}", options.join(" | ")));
        }
        if field.default != Value::Null {
            line.push_str(&format!(", else {}", view::value_text(&field.default)));
        }
        line.push(')');
        if !field.label.is_empty() {
            line.push_str(&format!(": {}", field.label));
        }
        lines.push(clean(&line));
    }
    if !question.token.is_empty() {
        lines.push(format!("token {}", question.token));
    }
    if let Some(at) = question.timeout_at {
        lines.push(format!("until {at}"));
    }
    lines
}

/// What to put behind `piton answer RUN`.
fn example(question: &OpenQuestion) -> String {
    match &question.form {
        Some(form) if form.approval => " --set approved=true".to_owned(),
        Some(form) if !form.fields.is_empty() => {
            let wanted = form.fields.iter().filter(|field| field.required || form.fields.len() == 1);
            wanted.map(|field| format!(" --set {}=…", clean(&field.name))).collect()
        }
        Some(_) => " --set NAME=VALUE".to_owned(),
        None => " --value VALUE".to_owned(),
    }
}

/// A question as JSON.
pub(crate) fn json(question: &OpenQuestion) -> serde_json::Value {
    let form = question.form.as_ref();
    let fields: Vec<_> = form
        .into_iter()
        .flat_map(|form| &form.fields)
        .map(|field| {
            json!({
                "name": field.name,
                "label": field.label,
                "type": field.kind,
                "required": field.required,
                "options": field.options.iter().map(view::value_json).collect::<Vec<_>>(),
                "default": view::value_json(&field.default),
            })
        })
        .collect();
    json!({
        "step": question.step.as_str(),
        "token": question.token,
        "title": form.map(|form| form.title.as_str()),
        "prompt": question.prompt,
        "approval": form.is_some_and(|form| form.approval),
        "fields": fields,
        "problem": form.and_then(|form| form.problem.as_deref()),
        "timeout_at": question.timeout_at.map(|at| at.to_string()),
    })
}
