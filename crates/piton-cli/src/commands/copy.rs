//! `piton copy`: runs from one store into another.

use piton_app::store::copy::{CopyRuns, copy};
use piton_app::views::store::CopiedView;

use crate::arguments::store::Copy;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::table;

pub(crate) async fn execute(session: &Session, arguments: &Copy) -> Result<Exit, Failure> {
    let wanted = CopyRuns {
        from: arguments.from.clone(),
        to: arguments.to.clone(),
        runs: arguments.run.clone(),
        to_key_file: arguments.to_key_file.clone(),
    };
    show(session, &copy(session, &wanted).await?)?;
    Ok(Exit::Done)
}

/// Says what was copied.
pub(crate) fn show(session: &Session, copied: &CopiedView) -> Result<(), Failure> {
    if session.output.is_json() {
        return session.output.view(copied);
    }
    let (runs, size) = (table::count(copied.runs.len(), "run"), table::size(copied.bytes));
    session.output.data(&format!("{runs}: {} new entries, {size}", copied.entries))
}
