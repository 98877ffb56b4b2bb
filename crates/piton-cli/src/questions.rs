//! The questions of a run, for people.

use piton_app::views::run::{FieldView, QuestionView};
use piton_app::words::typed;
use piton_types::RunId;
use serde_json::Value as Json;

use crate::output::{Output, clean};
use crate::view::value_text;

/// Shows what a run waits for, and how to answer.
pub(crate) fn show(output: &Output, run: &RunId, questions: &[QuestionView]) {
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
pub(crate) fn lines(question: &QuestionView) -> Vec<String> {
    let mut lines = Vec::new();
    if !question.has_form {
        return lines;
    }
    if let Some(problem) = &question.problem {
        lines.push(clean(&format!("the last answer was refused: {problem}")));
    }
    for field in &question.fields {
        let mut line = format!("{} ({}", field.name, field.kind);
        if field.required {
            line.push_str(", required");
        }
        if !field.options.is_empty() {
            let options: Vec<_> = field.options.iter().map(value_text).collect();
            line.push_str(&format!(", one of {}", options.join(" | ")));
        }
        if field.default != Json::Null {
            line.push_str(&format!(", else {}", value_text(&field.default)));
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
fn example(question: &QuestionView) -> String {
    if question.approval {
        return " --set approved=true".to_owned();
    }
    if !question.fields.is_empty() {
        let all = !question.fields.iter().any(|field| field.required);
        let wanted = question.fields.iter().filter(|field| all || field.required);
        return wanted
            .map(|field| format!(" {}", typed(&["--set", &format!("{}={}", clean(&field.name), example_of(field))])))
            .collect();
    }
    // A form without fields, or whatever is said is the answer.
    if question.has_form { " --value '{}'" } else { " --value yes" }.to_owned()
}

/// Something that a field takes.
fn example_of(field: &FieldView) -> String {
    let option = field.options.first().map(|option| option.as_str().map_or_else(|| option.to_string(), clean));
    option.unwrap_or_else(|| {
        match field.kind.as_str() {
            "boolean" | "checkbox" => "true",
            "number" | "integer" => "1",
            "object" => "{}",
            kind if kind.starts_with("array") || kind == "list" => "[]",
            _ => "your answer",
        }
        .to_owned()
    })
}
