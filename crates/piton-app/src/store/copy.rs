//! Runs from one store into another.

use std::path::PathBuf;
use std::sync::Arc;

use piton_log::upkeep::Copier;
use piton_runtime::retention::{rules, set_rules};
use piton_store::{RunQuery, Store, StoreError};
use piton_types::Retention;
use piton_types::RunId;
use piton_workspace::SnapshotReach;

use crate::app::{Access, App};
use crate::failure::Failure;
use crate::place::keys::KeySources;
use crate::place::{Origin, Place};
use crate::references::run_id;
use crate::views::store::CopiedView;

/// What a copy is asked for.
#[derive(Debug, Clone)]
pub struct CopyRuns {
    /// The URL of the store that has them.
    pub from: String,
    /// The URL of the store that gets them.
    pub to: String,
    /// Which; all if none is named.
    pub runs: Vec<RunId>,
    /// The key of the store that gets them.
    pub to_key_file: Option<PathBuf>,
}

/// Copies runs. A copy of a whole store keeps its rules, unless the target has rules of its own.
pub async fn copy(app: &App, wanted: &CopyRuns) -> Result<CopiedView, Failure> {
    let place = |url: &String| Place { url: url.clone(), origin: Origin::Option };
    if wanted.from == wanted.to {
        return Err(Failure::usage("a store can't be copied into itself"));
    }
    if wanted.to.starts_with("memory:") {
        return Err(Failure::usage("what is copied into memory: is gone when this command ends").hint(
            "nothing was copied; name a store that stays, as sqlite:/path/to/store.db or file:/path/to/folder.",
        ));
    }
    let from = app.open(&place(&wanted.from), Access::Look).await?;
    let to = app.naming(open_target(app, &place(&wanted.to), wanted).await?, &app.residence());
    let runs = match wanted.runs.is_empty() {
        true => all(&from).await?,
        false => {
            let mut runs = Vec::new();
            for run in &wanted.runs {
                runs.push(run_id(app, &from, run).await?);
            }
            runs
        }
    };
    if wanted.runs.is_empty() {
        copy_rules(app, &*from, &*to).await?;
    }
    let copied = copy_all(app, &from, &to, runs).await;
    to.close().await?;
    from.close().await?;
    copied
}

async fn open_target(app: &App, place: &Place, wanted: &CopyRuns) -> Result<Arc<dyn Store>, Failure> {
    let keys = match &wanted.to_key_file {
        Some(file) => KeySources { option: Some(file.clone()), ..KeySources::default() },
        None => app.surroundings.keys.clone(),
    };
    // A user who gives a key for it doesn't mean a new one in clear.
    let below =
        app.open_below(place, if wanted.to_key_file.is_none() { Access::Create } else { Access::Change }).await?;
    if wanted.to_key_file.is_some() && !piton_store::is_encrypted(&*below).await? {
        let hint = "nothing was copied; leave the key out, or make an encrypted one with `piton init --store URL --encrypt --key-file FILE`.";
        return Err(
            Failure::refused(format!("{} isn't encrypted, and --to-key-file gives a key for it", wanted.to)).hint(hint)
        );
    }
    app.unlock(below, &keys).await.map_err(|failure| match keys.is_empty() {
        true => failure.hint(format!("{} is encrypted: name its key file with `--to-key-file FILE`.", wanted.to)),
        false => failure,
    })
}

/// Rules that can't be read are no reason not to copy what can.
async fn copy_rules(app: &App, from: &dyn Store, to: &dyn Store) -> Result<(), Failure> {
    match rules(from).await {
        Ok(kept) if kept != Retention::default() && rules(to).await? == Retention::default() => {
            set_rules(to, &kept).await?;
        }
        Ok(_) => {}
        Err(error) => app.warn(&format!("the usual rules hold for what the copy keeps: {error}")),
    }
    Ok(())
}

/// Every run, oldest first.
pub(super) async fn all(store: &Arc<dyn Store>) -> Result<Vec<RunId>, StoreError> {
    let mut runs: Vec<RunId> = store.list(RunQuery::default()).await?.into_iter().map(|run| run.id).collect();
    runs.reverse();
    Ok(runs)
}

/// Copies these runs.
pub(super) async fn copy_all(
    app: &App,
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    runs: Vec<RunId>,
) -> Result<CopiedView, Failure> {
    let mut view = CopiedView { runs, entries: 0, packs: 0, bytes: 0 };
    let copying = async {
        let mut copier = Copier::new(from, to, &SnapshotReach);
        for run in &view.runs {
            let copied = copier.run(run).await.map_err(|error| match error {
                StoreError::Conflict { .. } => Failure::fixable(format!("{} has another run {run}", to.url()))
                    .hint("nothing of it was changed; runs before it are copied."),
                error => Failure::from(error),
            })?;
            view.entries += copied.entries;
            view.packs += copied.packs;
            view.bytes += copied.bytes;
        }
        Ok::<_, Failure>(())
    };
    app.through_stores("copying", copying).await?;
    Ok(view)
}
