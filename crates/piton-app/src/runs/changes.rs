//! Which runs moved, as they move: one question to the store for all of them.

use std::sync::Arc;
use std::time::Duration;

use piton_store::{Cursor, Store};

use crate::app::App;
use crate::failure::Failure;
use crate::views::run::RunView;

/// How often the store is asked.
const LOOK: Duration = Duration::from_millis(300);
/// How many runs are told of at once.
const PAGE: usize = 256;

/// The runs whose logs grow.
pub struct Changing {
    store: Arc<dyn Store>,
    cursor: Cursor,
}

impl Changing {
    /// From now on, or from where `cursor` says.
    pub async fn since(app: &App, cursor: Option<&str>) -> Result<Self, Failure> {
        let store = app.look().await?;
        let Some(changes) = store.changes() else {
            return Err(Failure::fixable(format!("the store {} doesn't tell what moves", store.url()))
                .hint("ask for the list of runs from time to time."));
        };
        let cursor = match cursor {
            None => changes.now().await?,
            Some(text) => read(text).ok_or_else(|| Failure::usage(format!("{text:?} is no cursor")))?,
        };
        Ok(Self { store, cursor })
    }

    /// Where it is.
    pub fn cursor(&self) -> String {
        format!("{}-{}", self.cursor.0, self.cursor.1)
    }

    /// Waits until runs moved, and gives them as they are now, each once.
    pub async fn wait(&mut self) -> Result<Vec<RunView>, Failure> {
        loop {
            let Some(changes) = self.store.changes() else { return Ok(Vec::new()) };
            let (moved, cursor) = changes.changed(self.cursor, PAGE).await?;
            self.cursor = cursor;
            let mut runs = Vec::with_capacity(moved.len());
            for run in moved {
                // One that was removed since isn't told of.
                runs.extend(self.store.summary(&run).await?.map(RunView::from));
            }
            if !runs.is_empty() {
                return Ok(runs);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn read(text: &str) -> Option<Cursor> {
    let (a, b) = text.split_once('-')?;
    Some(Cursor(a.parse().ok()?, b.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_two_numbers() {
        assert_eq!(read("3-7"), Some(Cursor(3, 7)));
        for wrong in ["", "3", "3-", "-", "a-b", "3-7-9"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
