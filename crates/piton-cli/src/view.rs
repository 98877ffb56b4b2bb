//! Values, usage and kinds of entries as people read them.

use piton_app::views::run::UsageView;
use piton_types::EntryKind;
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

/// A cost as people write it; `-` if nothing is known.
pub(crate) fn cost_text(usage: Option<UsageView>) -> String {
    usage.map_or_else(|| "-".to_owned(), |usage| format!("{:.4}", usage.cost))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_control_no_terminal() {
        assert_eq!(value_text(&"\x1b[2J\u{9b}\u{202e}".into()), r#""\u001b[2J\u{9b}\u{202e}""#);
    }
}
