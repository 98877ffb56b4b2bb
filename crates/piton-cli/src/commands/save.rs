//! `piton save`: a checkpoint of the files, by hand.

use piton_app::files::status::save;
use piton_app::views::files::SavedView;

use crate::arguments::files::Save;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table;

pub(crate) async fn execute(session: &Session, arguments: &Save) -> Result<Exit, Failure> {
    let saved = save(session, arguments.message.clone(), arguments.capture.into()).await?;
    show(session, &saved)?;
    Ok(Exit::Done)
}

/// Says what was captured.
pub(crate) fn show(session: &Session, saved: &SavedView) -> Result<(), Failure> {
    let output = &session.output;
    for path in &saved.unsteady {
        output.warn(&format!("{} changed while it was read; what was read last is kept", clean(path)));
    }
    for path in &saved.secrets {
        output.warn(&format!("there is a secret in {}", clean(path)));
    }
    if output.is_json() {
        return output.view(saved);
    }
    let files = if saved.files == 1 { "1 file".to_owned() } else { format!("{} files", saved.files) };
    let mut line = format!("{}  {files}, {}", saved.id, table::size(saved.bytes));
    if saved.changed == Some(false) {
        line.push_str(", unchanged");
    }
    if saved.excluded > 0 {
        line.push_str(&format!(", {} not captured", saved.excluded));
    }
    output.data(&line)
}
