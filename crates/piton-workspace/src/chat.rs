//! `/checkpoint create [description]`, `list`, `restore <id>`: what people type into a chat (W8).

use piton_types::CheckpointRef;

use crate::Timeline;

/// How it is used, for a user who typed something else.
pub const USAGE: &str = "usage: /checkpoint create [description] | list | restore <id>";

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatCommand {
    /// A checkpoint, with what it is for.
    Create(String),
    /// The checkpoints there are.
    List,
    /// Back to one, by its id or a short form of it.
    Restore(String),
}

/// Why a text is no command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// It isn't one of these at all.
    #[error("{USAGE}")]
    Usage,
    /// No checkpoint has that id.
    #[error("there is no checkpoint {id:?} of this folder; /checkpoint list shows them")]
    Unknown {
        /// What was typed, cut to 80 characters.
        id: String,
    },
    /// More than one has it.
    #[error("{id:?} may be {}", candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "))]
    Ambiguous {
        /// What was typed.
        id: String,
        /// What it may be.
        candidates: Vec<CheckpointRef>,
    },
}

/// Reads a command; `None` if the text doesn't begin with `/checkpoint`.
pub fn parse_chat_command(text: &str) -> Option<Result<ChatCommand, ChatError>> {
    let rest = text.trim().strip_prefix("/checkpoint")?;
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let mut words = rest.split_whitespace();
    let verb = words.next();
    let rest: Vec<&str> = words.collect();
    Some(match (verb, &rest[..]) {
        (Some("create"), description) => Ok(ChatCommand::Create(description.join(" "))),
        (Some("list"), []) => Ok(ChatCommand::List),
        (Some("restore"), [id]) => Ok(ChatCommand::Restore((*id).to_owned())),
        _ => Err(ChatError::Usage),
    })
}

impl Timeline {
    /// The checkpoint that an id or a short form of it means: `RUN@7`, its unique beginning, or its number
    /// alone where only one run has it.
    pub fn find_short(&self, id: &str) -> Result<&CheckpointRef, ChatError> {
        let shown: String = id.chars().take(80).collect();
        let (run, seq) = id.split_once('@').unwrap_or(("", id));
        let fits =
            |checkpoint: &CheckpointRef| checkpoint.seq.to_string() == seq && checkpoint.run.as_str().starts_with(run);
        let mut found: Vec<&CheckpointRef> = self
            .moments
            .iter()
            .filter(|moment| !moment.removed)
            .map(|moment| &moment.checkpoint)
            .filter(|checkpoint| fits(checkpoint))
            .collect();
        if let Some(exact) = found.iter().position(|checkpoint| checkpoint.to_string() == id) {
            return Ok(found.swap_remove(exact));
        }
        match found[..] {
            [] => Err(ChatError::Unknown { id: shown }),
            [one] => Ok(one),
            _ => Err(ChatError::Ambiguous { id: shown, candidates: found.into_iter().cloned().collect() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_talk() {
        assert_eq!(parse_chat_command("hello"), None);
        assert_eq!(parse_chat_command("/checkpoints"), None);
        assert_eq!(
            parse_chat_command(" /checkpoint create before  the move "),
            Some(Ok(ChatCommand::Create("before the move".to_owned())))
        );
        assert_eq!(parse_chat_command("/checkpoint list"), Some(Ok(ChatCommand::List)));
        assert_eq!(parse_chat_command("/checkpoint restore a@7"), Some(Ok(ChatCommand::Restore("a@7".to_owned()))));
        for wrong in ["/checkpoint", "/checkpoint list all", "/checkpoint restore", "/checkpoint remove 7"] {
            assert_eq!(parse_chat_command(wrong), Some(Err(ChatError::Usage)), "{wrong}");
        }
    }
}
