//! The files that a checkpoint names by their hashes. Their contents aren't kept, so all that can be done is to
//! go on with what is there; the workspace can do more.

use std::path::Path;

use async_trait::async_trait;

use super::validate::place;
use super::{Change, Changes, Choice, Environment, PortError, Whole};

/// Notices when the files that a checkpoint requires have changed or are gone.
#[derive(Clone, Copy)]
pub struct RequiredFiles<'a> {
    environment: &'a dyn Environment,
}

impl<'a> RequiredFiles<'a> {
    /// As this environment has them.
    pub const fn new(environment: &'a dyn Environment) -> Self {
        Self { environment }
    }
}

#[async_trait]
impl Changes for RequiredFiles<'_> {
    async fn since(&self, checkpoint: &Whole) -> Result<Vec<Change>, PortError> {
        let Some(recovery) = checkpoint.record.as_ref().map(|record| &record.recovery) else { return Ok(Vec::new()) };
        let folder = recovery.working_directory.as_deref().map(Path::new);
        let mut changes = Vec::new();
        for file in &recovery.requirements.files {
            let path = file.path.clone();
            match (self.environment.file_hash(&place(folder, &path)).await, file.hash) {
                (Ok(None), _) => changes.push(Change::FileDeleted { path }),
                (Ok(Some(now)), Some(then)) if now != then => changes.push(Change::FileModified { path }),
                (Ok(Some(_)), _) => {}
                // The report has it.
                (Err(_), _) => {}
            }
        }
        Ok(changes)
    }

    fn can(&self, choice: Choice) -> bool {
        matches!(choice, Choice::UseCurrent | Choice::Skip)
    }

    async fn carry_out(&self, _change: &Change, _choice: Choice) -> Result<(), PortError> {
        Ok(())
    }
}
