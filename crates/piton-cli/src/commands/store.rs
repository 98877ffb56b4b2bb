//! `piton store`: the stores of your folders, listed, removed, given to another folder.

use piton_app::store::stores::{RemovingStore, give, list};

use crate::arguments::store::{StoreAction, Stores};
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::{Table, size};

pub(crate) async fn execute(session: &Session, arguments: Stores) -> Result<Exit, Failure> {
    let output = &session.output;
    match arguments.action {
        StoreAction::Ls => {
            let stores = list(session).await?;
            if output.is_json() {
                output.list(&stores)?;
            } else if stores.is_empty() {
                output.note("no folder has a store yet; `piton init` makes one for this folder");
            } else {
                let mut table = Table::with_heading(&["STORE", "RUNS", "SIZE", "FOLDER"]);
                for store in &stores {
                    let folder = match (&store.folder, store.is_there, store.encrypted) {
                        (Some(folder), true, _) => clean(folder),
                        (Some(folder), false, _) => format!("{} (gone)", clean(folder)),
                        (None, _, true) => "(encrypted)".to_owned(),
                        (None, _, false) => "(not known)".to_owned(),
                    };
                    let runs = store.runs.map_or_else(|| "?".to_owned(), |runs| runs.to_string());
                    table.row(vec![clean(&store.name), runs, size(store.bytes), folder]);
                }
                output.data(&table.render(output.width()))?;
            }
        }
        StoreAction::Rm { store, consent } => {
            let removing = RemovingStore::plan(session, &store).await?;
            if !agreed(&removing.plan, session, consent)? {
                return Ok(Exit::Done);
            }
            let gone = removing.carry_out()?;
            match output.is_json() {
                true => output.view(&gone)?,
                false => output.note(&format!("removed {}: {}", clean(&gone.store), size(gone.bytes))),
            }
        }
        StoreAction::Mv { store, folder } => {
            let view = give(session, &store, folder.as_deref()).await?;
            match output.is_json() {
                true => output.view(&view)?,
                false => {
                    let folder = view.folder.as_deref().unwrap_or("another folder");
                    output.note(&format!("{} is the store of {} now", clean(&view.store), clean(folder)));
                }
            }
        }
    }
    Ok(Exit::Done)
}
