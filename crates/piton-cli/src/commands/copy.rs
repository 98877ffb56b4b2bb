//! `piton copy`: runs from one store into another.

use std::sync::Arc;

use piton::Retention;
use piton::retention::{rules, set_rules};
use piton::upkeep::{Copied, Copier};
use piton::workspace::SnapshotReach;
use piton_store::{RunQuery, Store, StoreError};
use piton_types::RunId;
use serde_json::json;

use crate::arguments::store::Copy;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::table;
use piton_app::place::keys::KeySources;
use piton_app::place::{Origin, Place};
use piton_app::references::run_id;

pub(crate) async fn execute(session: &Session, arguments: &Copy) -> Result<Exit, Failure> {
    let place = |url: &String| Place { url: url.clone(), origin: Origin::Option };
    if arguments.from == arguments.to {
        return Err(Failure::usage("a store can't be copied into itself"));
    }
    if arguments.to.starts_with("memory:") {
        return Err(Failure::usage("what is copied into memory: is gone when this command ends").hint(
            "nothing was copied; name a store that stays, as sqlite:/path/to/store.db or file:/path/to/folder.",
        ));
    }
    let from = session.open(&place(&arguments.from), false).await?;
    let keys = match &arguments.to_key_file {
        Some(file) => KeySources { option: Some(file.clone()), ..KeySources::default() },
        None => session.surroundings.keys.clone(),
    };
    // Whoever gives a key for it doesn't mean a new one in clear.
    let below = session.open_below(&place(&arguments.to), arguments.to_key_file.is_none()).await?;
    if arguments.to_key_file.is_some() && !piton_store::is_encrypted(&*below).await? {
        return Err(Failure::refused(format!(
            "{} isn't encrypted, and --to-key-file gives a key for it",
            arguments.to
        ))
        .hint(
            "nothing was copied; leave the key out, or make an encrypted one with `piton init --store URL --encrypt`.",
        ));
    }
    let to = session.unlock(below, &keys).await.map_err(|failure| match keys.is_empty() {
        true => failure.hint(format!("{} is encrypted: name its key file with `--to-key-file FILE`.", arguments.to)),
        false => failure,
    })?;
    let runs = match arguments.run.is_empty() {
        true => all(&from).await?,
        false => {
            let mut runs = Vec::new();
            for run in &arguments.run {
                runs.push(run_id(&from, run).await?);
            }
            runs
        }
    };
    if arguments.run.is_empty() {
        copy_rules(session, &*from, &*to).await?;
    }
    let copied = copy_all(session, &from, &to, &runs).await;
    to.close().await?;
    from.close().await?;
    copied?;
    Ok(Exit::Done)
}

/// A copy of a whole store is kept as that was, unless it has rules of its own. Rules that can't be read are no reason
/// not to copy what can.
async fn copy_rules(session: &Session, from: &dyn Store, to: &dyn Store) -> Result<(), Failure> {
    match rules(from).await {
        Ok(kept) if kept != Retention::default() && rules(to).await? == Retention::default() => {
            set_rules(to, &kept).await?;
        }
        Ok(_) => {}
        Err(error) => session.output.warn(&format!("the usual rules hold for what the copy keeps: {error}")),
    }
    Ok(())
}

/// Every run, oldest first.
pub(crate) async fn all(store: &Arc<dyn Store>) -> Result<Vec<RunId>, StoreError> {
    let mut runs: Vec<RunId> = store.list(RunQuery::default()).await?.into_iter().map(|run| run.id).collect();
    runs.reverse();
    Ok(runs)
}

/// Copies runs, and says what was copied.
pub(crate) async fn copy_all(
    session: &Session,
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    runs: &[RunId],
) -> Result<(), Failure> {
    let mut whole = Copied::default();
    let copying = async {
        let mut copier = Copier::new(from, to, &SnapshotReach);
        for run in runs {
            let copied = copier.run(run).await.map_err(|error| match error {
                StoreError::Conflict { .. } => Failure::fixable(format!("{} has another run {run}", to.url()))
                    .hint("nothing of it was changed; runs before it are copied."),
                error => Failure::from(error),
            })?;
            whole.entries += copied.entries;
            whole.packs += copied.packs;
            whole.bytes += copied.bytes;
        }
        Ok::<_, Failure>(())
    };
    session.through_stores("copying", copying).await?;
    if session.output.is_json() {
        session.output.object(&json!({
            "runs": runs.iter().map(RunId::as_str).collect::<Vec<_>>(),
            "entries": whole.entries,
            "packs": whole.packs,
            "bytes": whole.bytes,
        }))
    } else {
        let text =
            format!("{}: {} new entries, {}", table::count(runs.len(), "run"), whole.entries, table::size(whole.bytes));
        session.output.data(&text)
    }
}
