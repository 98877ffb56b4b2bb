//! `piton undo` and `piton redo`: an operation log.

use std::sync::Arc;

use piton::workspace::{Goal, Record, Role};
use piton_store::{RunLog, Span, Store};
use piton_types::{CheckpointRef, from_value};

use crate::arguments::files::{Redo, Undo};
use crate::commands::restore::{carry_out, options};
use crate::failure::{Exit, Failure};
use crate::files::open;
use crate::keeping;
use crate::reference::Reference;
use crate::resolve::{Target, resolve};
use crate::session::Session;

pub(crate) async fn undo(session: &Session, arguments: &Undo) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let operation = match &arguments.reference {
        None => None,
        Some(reference) => Some(operation(&store, reference).await?),
    };
    let workspace = open(session, &store, arguments.change.capture).await?;
    let change = &arguments.change;
    let exit = carry_out(session, &workspace, &Goal::Undo(operation), options(change)?, change, false).await?;
    keeping::in_passing(session, &store, Some(&workspace)).await;
    store.close().await?;
    Ok(exit)
}

pub(crate) async fn redo(session: &Session, arguments: &Redo) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let workspace = open(session, &store, arguments.change.capture).await?;
    let change = &arguments.change;
    let exit = carry_out(session, &workspace, &Goal::Redo, options(change)?, change, false).await?;
    keeping::in_passing(session, &store, Some(&workspace)).await;
    store.close().await?;
    Ok(exit)
}

/// The entry that ended what is meant: a step, a session, or a checkpoint itself.
async fn operation(store: &Arc<dyn Store>, reference: &Reference) -> Result<CheckpointRef, Failure> {
    let (log, seq) = match resolve(store, reference).await? {
        Target::Step(log, entry) | Target::Entry(log, entry) => (log, entry.seq),
        Target::Run(log) => {
            let seq = session_end(&log).await?.ok_or_else(|| {
                Failure::fixable(format!("run {} has ended no session here", log.run()))
                    .hint("`piton log RUN` shows its checkpoints; `piton restore RUN@7` returns to one.")
            })?;
            (log, seq)
        }
        Target::Blob(..) => return Err(Failure::usage(format!("{reference} is not a step, session or checkpoint"))),
    };
    Ok(CheckpointRef { run: log.run().clone(), seq })
}

/// The newest entry that closed the whole session of a run.
async fn session_end(log: &RunLog) -> Result<Option<piton_types::Seq>, Failure> {
    for entry in log.entries(Span::newest(usize::MAX)).await? {
        let record: Option<Record> =
            if entry.parts.is_empty() { None } else { from_value(log.body(&entry).await?).ok() };
        let session = |record: &Record| {
            matches!(record.role, Role::Closed { .. }) && record.kind == piton_types::CheckpointKind::Session
        };
        if record.as_ref().is_some_and(session) {
            return Ok(Some(entry.seq));
        }
    }
    Ok(None)
}
