//! What to do about a failure: text with commands in it, which a shell shows as it sees fit (a terminal in backticks, a
//! page as buttons).

use std::fmt;

use serde::{Serialize, Serializer};

/// A piece of a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Words.
    Text(String),
    /// A command of piton, or a part of one.
    Code(String),
}

/// A command of piton, as words without the program's name. A word in capitals stands for something that the user must
/// say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command(pub Vec<String>);

/// What to do. Written and serialised as one text in which what is between backticks is code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    pieces: Vec<Piece>,
}

impl Hint {
    /// The pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The whole commands in it, in order.
    pub fn commands(&self) -> Vec<Command> {
        let code = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Code(code) => code.strip_prefix("piton "),
            Piece::Text(_) => None,
        });
        code.map(|words| Command(words.split_whitespace().map(str::to_owned).collect())).collect()
    }
}

impl From<&str> for Hint {
    fn from(text: &str) -> Self {
        let pieces = text.split('`').enumerate().map(|(place, piece)| match place % 2 {
            0 => Piece::Text(piece.to_owned()),
            _ => Piece::Code(piece.to_owned()),
        });
        Self { pieces: pieces.collect() }
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, piece) in self.pieces.iter().enumerate() {
            let mark = if place == 0 { "" } else { "`" };
            let (Piece::Text(text) | Piece::Code(text)) = piece;
            write!(f, "{mark}{text}")?;
        }
        Ok(())
    }
}

impl Serialize for Hint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_and_the_text_stays_as_it_was_written() {
        for text in
            ["", "no code", "`piton log RUN` shows it; `--yes` goes on, `piton stop RUN` stops it.", "odd ` one"]
        {
            assert_eq!(Hint::from(text).to_string(), text);
        }
        let hint = Hint::from("`piton show r@7 --steps` shows it; `--yes` goes on.");
        assert_eq!(hint.commands(), [Command(vec!["show".to_owned(), "r@7".to_owned(), "--steps".to_owned()])]);
    }
}
