//! The questions of a run, for people.

use piton_app::views::run::QuestionView;
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
        let wanted = question.fields.iter().filter(|field| field.required || question.fields.len() == 1);
        return wanted.map(|field| format!(" --set {}=…", clean(&field.name))).collect();
    }
    if question.has_form { " --set NAME=VALUE" } else { " --value VALUE" }.to_owned()
}
