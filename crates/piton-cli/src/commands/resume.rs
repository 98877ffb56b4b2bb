//! `piton resume`: goes on with a run that exists, by the document and inputs that its log has.

use piton::resume_durable;
use piton_types::Durability;

use crate::arguments::Resume;
use crate::drive::drive;
use crate::failure::{Exit, Failure};
use crate::resolve::run_id;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Resume) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    let id = run.clone();
    drive(session, store, &run, |context, events| async move {
        resume_durable(&context, &id, Durability::Durable, events).await
    })
    .await
}
