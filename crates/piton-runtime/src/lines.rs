//! The log of a run for people: lines that steps write, kept with the run.
//!
//! Lines cost no commit of their own. They go into the entry of the next step that ends; what a long
//! step writes meanwhile is put down about once a second, so that a reader may follow it, and so that
//! little is lost if the process dies.

use std::sync::Arc;

use piton_log::Draft;
use piton_types::{Durability, EntryKind, to_value};

use crate::core::{Core, Known};
use crate::record::{LogLine, LogRecord};
use crate::{RunError, Scope};

/// More of a line isn't kept.
const LONGEST: usize = 8 << 10;

/// Writes lines into the log of a run; for the work of steps, which can't use the run itself.
#[derive(Debug, Clone)]
pub struct Lines {
    core: Arc<Core>,
}

impl Lines {
    /// Writes a line. It is in the log when the step that writes it is.
    pub fn write(&self, text: impl Into<String>) {
        self.core.write_line(text.into());
    }
}

impl Scope {
    /// A way to write lines into the log of the run.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, WholeHistory, OpenRun, Run, RunError};
    /// # use piton_log::RunLog;
    /// # use piton_store_objects::ObjectStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// let mut run = Run::open(&context, OpenRun::default()).await?;
    /// let lines = run.lines();
    /// run.step("fetch", "bees", async |topic| {
    ///     lines.write(format!("looking for {topic}"));
    ///     Ok::<_, std::io::Error>(7)
    /// })
    /// .await?;
    /// let history = WholeHistory::of(&context, run.id()).await?;
    /// assert_eq!(history.log[0].text, "looking for bees");
    /// # Ok(())
    /// # }
    /// ```
    pub fn lines(&self) -> Lines {
        Lines { core: Arc::clone(&self.core) }
    }
}

impl Known {
    /// These lines are in the log. A write whose future was dropped may have been found there by then.
    pub(crate) fn cross_off(&mut self, lines: &[LogLine]) {
        if self.lines.starts_with(lines) {
            self.lines.drain(..lines.len());
        }
    }
}

impl Core {
    pub(crate) fn write_line(&self, mut text: String) {
        text.truncate(text.floor_char_boundary(LONGEST));
        let line = LogLine { at: self.context.clock.now(), text };
        self.known().lines.push(line);
    }

    /// The lines that no entry has yet. They are [crossed off](Known::cross_off) when one has them.
    pub(crate) fn open_lines(&self) -> Vec<LogLine> {
        self.known().lines.clone()
    }

    /// Puts down what was written so far, if anything was.
    pub(crate) async fn flush_lines(&self) -> Result<(), RunError> {
        if self.known().lines.is_empty() {
            return Ok(());
        }
        let mut writer = self.writer().await?;
        let lines = LogRecord { log: self.open_lines(), ..LogRecord::default() };
        if lines.log.is_empty() {
            return Ok(());
        }
        let mut draft = Draft::new(EntryKind::Logged, self.context.clock.now());
        draft.body = to_value(&lines).map_err(RunError::value("lines of the log"))?;
        self.append_with(&mut writer, draft, Durability::Relaxed).await?;
        self.known().cross_off(&lines.log);
        Ok(())
    }
}
