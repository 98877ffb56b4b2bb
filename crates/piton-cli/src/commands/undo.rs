//! `piton undo` and `piton redo`.

use piton_app::files::restore::{Conflicts, Restoring};

use crate::arguments::files::{Redo, Undo};
use crate::commands::restore::{carry_out, conflicts};
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn undo(session: &Session, arguments: &Undo) -> Result<Exit, Failure> {
    let change = &arguments.change;
    let reference = arguments.reference.as_ref();
    let conflicts = Conflicts { shared: arguments.both, ..conflicts(change) };
    let undoing = Restoring::undo(session, reference, &conflicts, change.capture.into()).await?;
    let undoing = undoing.only(session, &arguments.paths)?;
    carry_out(session, undoing, change, false).await
}

pub(crate) async fn redo(session: &Session, arguments: &Redo) -> Result<Exit, Failure> {
    let change = &arguments.change;
    let redoing = Restoring::redo(session, &conflicts(change), change.capture.into()).await?;
    carry_out(session, redoing, change, false).await
}
