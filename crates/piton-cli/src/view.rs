//! Values, usage and kinds of entries as people read them.

use piton_app::views::run::UsageView;
use piton_types::{EntryKind, RunStatus, Verification};
use serde_json::Value as Json;

use crate::output::clean;

/// A value on one line.
pub(crate) fn value_line(value: &Json) -> String {
    clean(&value.to_string())
}

/// A value on as many lines as it takes.
pub(crate) fn value_text(value: &Json) -> String {
    let text = format!("{value:#}");
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// A value as a person reads it: what is short first, texts of several lines as lines, no quotation marks.
pub(crate) fn people_text(value: &Json) -> String {
    let mut lines = Vec::new();
    people_lines(value, 0, &mut lines);
    lines.join("\n")
}

fn people_lines(value: &Json, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    match value {
        Json::Object(fields) if !fields.is_empty() => {
            let mut fields: Vec<_> = fields.iter().collect();
            // Stable: of the same sort they stay in the order of their names.
            fields.sort_by_key(|(_, value)| sort(value));
            for (name, value) in fields {
                named_lines(&format!("{indent}{}:", clean(name)), value, depth, lines);
            }
        }
        Json::Array(items) if !items.is_empty() => {
            for item in items {
                named_lines(&format!("{indent}-"), item, depth, lines);
            }
        }
        Json::String(text) => lines.extend(text.lines().map(|line| format!("{indent}{}", clean(line)))),
        other => lines.push(format!("{indent}{}", value_line(other))),
    }
}

fn named_lines(name: &str, value: &Json, depth: usize, lines: &mut Vec<String>) {
    match value {
        Json::String(text) if text.trim_end().contains('\n') => {}
        Json::String(text) => return lines.push(format!("{name} {}", clean(text.trim_end_matches('\n')))),
        Json::Object(fields) if !fields.is_empty() => {}
        Json::Array(items) if !items.is_empty() => {}
        other => return lines.push(format!("{name} {}", value_line(other))),
    }
    lines.push(name.to_owned());
    people_lines(value, depth + 1, lines);
}

/// Texts first, then numbers and the like, then what has parts.
fn sort(value: &Json) -> u8 {
    match value {
        Json::String(text) => u8::from(text.trim_end().contains('\n')),
        Json::Object(_) | Json::Array(_) => 3,
        _ => 2,
    }
}

/// A cost as people write it; `-` if nothing is known, or nothing was paid.
pub(crate) fn cost_text(usage: Option<UsageView>) -> String {
    usage.map_or_else(|| "-".to_owned(), |usage| amount(usage.cost))
}

/// An amount of money, without the zeros that say nothing.
pub(crate) fn amount(cost: f64) -> String {
    if cost <= 0.0 {
        return "-".to_owned();
    }
    if cost < 0.0001 {
        return "<0.0001".to_owned();
    }
    let text = format!("{cost:.4}");
    let (whole, rest) = text.split_at(text.len() - 2);
    format!("{whole}{}", rest.trim_end_matches('0'))
}

/// The colour of a state.
pub(crate) const fn state_code(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Completed => "32",
        RunStatus::Failed => "31",
        RunStatus::Waiting | RunStatus::Paused => "33",
        RunStatus::InProgress => "36",
        RunStatus::Queued | RunStatus::Cancelled => "2",
    }
}

/// What people call an entry of this kind.
pub(crate) fn kind_word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Created => "created",
        EntryKind::Claimed => "started",
        EntryKind::StateChanged => "state",
        EntryKind::StepDone => "step",
        EntryKind::EffectIntent => "intent",
        EntryKind::EffectReceipt => "receipt",
        EntryKind::Answer => "answer",
        EntryKind::Checkpoint => "checkpoint",
        EntryKind::Restored => "restored",
        EntryKind::Asked => "question",
        EntryKind::Requested => "request",
        EntryKind::Logged => "log",
        EntryKind::Removed => "removed",
        EntryKind::Indexed => "index",
        EntryKind::FilesRestored => "files restored",
    }
}

/// What came of a check, in a line.
pub(crate) fn check_line(check: &Verification) -> String {
    let name = clean(&check.name);
    match (check.passed, check.detail.lines().next_back()) {
        (true, _) => format!("passed: {name}"),
        (false, Some(last)) => format!("failed: {name}: {}", clean(last)),
        (false, None) => format!("failed: {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_first_and_in_lines() {
        let value =
            serde_json::json!({"a": [1, {"x": 2}], "b": 3, "long": "one\ntwo\x1b", "z": "short\n", "empty": {}});
        insta::assert_snapshot!(people_text(&value), @r"
        z: short
        long:
          one
          two\u{1b}
        b: 3
        a:
          - 1
          -
            x: 2
        empty: {}
        ");
    }

    #[test]
    fn amounts_have_no_zeros_that_say_nothing() {
        let said = [0.0, 0.00001, 0.0021, 0.5, 12.0, 1.23456].map(amount);
        assert_eq!(said, ["-", "<0.0001", "0.0021", "0.50", "12.00", "1.2346"]);
    }

    #[test]
    fn values_control_no_terminal() {
        assert_eq!(value_text(&"\x1b[2J\u{9b}\u{202e}".into()), r#""\u001b[2J\u{9b}\u{202e}""#);
    }
}
