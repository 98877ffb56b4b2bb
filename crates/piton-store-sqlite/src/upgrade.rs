//! Bringing a store of an older format up to date.
//!
//! Each format has one step that leads to the next. All steps that a store needs, and the number of the format that it
//! has afterwards, are one transaction: a process that is killed in it leaves the old store, and the next open
//! begins again. Only a process that has the store alone does it, so that no older program writes meanwhile.
//!
//! There is one format so far, and so no step.

use piton_store::StoreError;
use rusqlite::Connection;

use crate::errors::translate;
use crate::files::{Files, invalid};
use crate::schema::FORMAT;

/// What leads from one format to the next.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The format that it begins with.
    pub from: u32,
    /// Changes tables and rows. It must not end the transaction that it is called in.
    pub change: fn(&Connection) -> rusqlite::Result<()>,
}

/// The newest format, and the steps that lead to it.
#[derive(Debug, Clone, Copy)]
pub struct Formats {
    /// The newest.
    pub newest: u32,
    /// One for each format before it that can still be opened.
    pub steps: &'static [Step],
}

impl Formats {
    /// Those of this version.
    pub const OURS: Self = Self { newest: FORMAT, steps: &[] };

    /// Refuses a format that is newer than this version knows, or so old that no step leads on from it.
    pub(crate) fn know(self, format: u32, files: &Files) -> Result<(), StoreError> {
        if format > self.newest {
            let what = files.database.display().to_string();
            return Err(StoreError::TooNew { what, found: format.into(), known: self.newest.into() });
        }
        match (format..self.newest).find(|from| self.steps.iter().all(|step| step.from != *from)) {
            None => Ok(()),
            Some(_) => Err(invalid(&files.database, &format!("its format {format} is too old for this version"))),
        }
    }

    /// Takes every step that the store needs.
    pub(crate) fn upgrade(self, conn: &Connection, format: u32, files: &Files) -> Result<(), StoreError> {
        let failed = |error: rusqlite::Error| translate(&error, &files.database);
        tracing::info!(from = format, to = self.newest, "the store is upgraded");
        let transaction = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate);
        let transaction = transaction.map_err(failed)?;
        for from in format..self.newest {
            let step = self.steps.iter().find(|step| step.from == from);
            (step.expect("looked for before").change)(&transaction).map_err(failed)?;
        }
        transaction.pragma_update(None, "user_version", self.newest).map_err(failed)?;
        transaction.commit().map_err(failed)
    }
}
