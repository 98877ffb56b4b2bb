//! Questions of a recovery on the terminal.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use piton_runtime::recovery::{Ask, Choice, Question};

use crate::output::clean;
use crate::terminal::answer;

/// Asks the person at the terminal, if there is one.
#[derive(Debug, Default)]
pub(crate) struct AskTerminal {
    /// A person who wants to stop isn't asked about the rest.
    aborted: AtomicBool,
}

#[async_trait]
impl Ask for AskTerminal {
    async fn ask(&self, question: &Question) -> Option<Choice> {
        if self.aborted.load(Ordering::Relaxed) && question.choices.contains(&Choice::Abort) {
            return Some(Choice::Abort);
        }
        let words: Vec<_> = question.choices.iter().map(ToString::to_string).collect();
        let prompt = format!("{}\n  {}? ", clean(&question.text), words.join(", "));
        loop {
            let said = answer(&prompt)?;
            if let Some(choice) = chosen(&said, &question.choices) {
                self.aborted.store(choice == Choice::Abort, Ordering::Relaxed);
                return Some(choice);
            }
        }
    }
}

/// The choice that begins so, if there is just one.
fn chosen(said: &str, choices: &[Choice]) -> Option<Choice> {
    let said = said.to_lowercase();
    let fits = |choice: &&Choice| choice.to_string().starts_with(&said);
    let exact = choices.iter().find(|choice| choice.to_string() == said);
    let mut fitting = choices.iter().filter(fits);
    match (exact, fitting.next(), fitting.next()) {
        (Some(choice), _, _) => Some(*choice),
        (None, Some(choice), None) if !said.is_empty() => Some(*choice),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_choice_is_enough_if_it_is_the_only_one() {
        let choices = [Choice::UseCurrent, Choice::UseCheckpoint, Choice::Merge, Choice::Abort];
        assert_eq!(chosen("M", &choices), Some(Choice::Merge));
        assert_eq!(chosen("use cu", &choices), Some(Choice::UseCurrent));
        assert_eq!(chosen("use", &choices), None);
        assert_eq!(chosen("", &choices), None);
        assert_eq!(chosen("restore", &choices), None);
    }
}
