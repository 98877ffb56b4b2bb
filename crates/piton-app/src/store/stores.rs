//! The stores of this user's folders: listed, removed, given to another folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_runtime::{Context, LeaseOptions, LeaseWatch, Standing};
use piton_store::{Hashing, RunQuery, Store};
use piton_types::{RunKind, RunStatus};

use crate::app::{Access, App};
use crate::failure::Failure;
use crate::place::Kept;
use crate::plan::Plan;
use crate::views::store::{StoreGoneView, StoreView};
use crate::words::{count, size};

/// Every store that is known, with what it says of itself.
pub async fn list(app: &App) -> Result<Vec<StoreView>, Failure> {
    let mut views = Vec::new();
    for kept in app.surroundings.stores()? {
        views.push(view(app, &kept).await?);
    }
    Ok(views)
}

async fn view(app: &App, kept: &Kept) -> Result<StoreView, Failure> {
    let mut view = StoreView {
        name: kept.name.clone(),
        store: kept.place.url.clone(),
        folder: kept.folder(&Hashing::PLAIN).map(|folder| folder.to_string_lossy().into_owned()),
        is_there: false,
        bytes: kept.bytes(),
        runs: None,
        encrypted: false,
        problem: None,
    };
    match app.open_below(&kept.place, Access::Look).await {
        Ok(below) => {
            view.encrypted = piton_store::is_encrypted(&*below).await?;
            view.runs = Some(below.usage().await?.runs);
            below.close().await?;
        }
        // It is listed all the same, so that it can be removed.
        Err(failure) => view.problem = Some(failure.message()),
    }
    view.is_there = view.folder.as_deref().is_some_and(|folder| Path::new(folder).is_dir());
    Ok(view)
}

/// The one that is meant: by its name or the beginning of it, its URL, or its folder.
fn find(app: &App, which: &str) -> Result<Kept, Failure> {
    let path = app.path(Path::new(which));
    let path = path.canonicalize().or_else(|_| std::path::absolute(&path)).ok();
    let is_it = |kept: &&Kept| {
        let folder = kept.folder(&Hashing::PLAIN);
        kept.name == which || kept.place.url == which || folder.is_some() && folder == path
    };
    let stores = app.surroundings.stores()?;
    let exact: Vec<&Kept> = stores.iter().filter(is_it).collect();
    let found = match exact.is_empty() && !which.is_empty() {
        true => stores.iter().filter(|kept| kept.name.starts_with(which)).collect(),
        false => exact,
    };
    match found[..] {
        [one] => Ok(one.clone()),
        [] => Err(Failure::not_found(format!("there is no store {which}")).hint("`piton store ls` shows all.")),
        _ => Err(Failure::fixable(format!("{which} may be any of {} stores", found.len()))
            .hint("write more of the name; `piton store ls` shows all.")),
    }
}

/// A store that is to be removed.
#[derive(Debug)]
pub struct RemovingStore {
    kept: Kept,
    /// What that means.
    pub plan: Plan,
}

impl RemovingStore {
    /// Finds out what removing it means; refused while a process drives one of its runs.
    pub async fn plan(app: &App, which: &str) -> Result<Self, Failure> {
        let kept = find(app, which)?;
        let view = view(app, &kept).await?;
        let mut plan = Plan::new(format!("remove the store {} for good", view.store));
        match &view.folder {
            Some(folder) if view.is_there => plan.line(format!("{folder} has no checkpoints then; its files stay")),
            Some(folder) => plan.line(format!("its folder {folder} is gone")),
            None => plan.line("it doesn't tell which folder it belongs to"),
        }
        if let Some(runs) = view.runs {
            let runs = count(usize::try_from(runs).unwrap_or(usize::MAX), "run");
            plan.line(format!("{runs} and all their checkpoints are gone: {}", size(view.bytes)));
        }
        if view.encrypted {
            plan.line("it is encrypted: nothing of it can be had back");
        }
        if let Some(problem) = &view.problem {
            plan.line(format!("it can't be opened: {problem}"));
        } else {
            let store = app.open_below(&kept.place, Access::Look).await?;
            refuse_driven(&store).await?;
            store.close().await?;
        }
        Ok(Self { kept, plan })
    }

    /// Removes it.
    pub fn carry_out(self) -> Result<StoreGoneView, Failure> {
        let bytes = self.kept.bytes();
        self.kept.remove()?;
        Ok(StoreGoneView { name: self.kept.name, store: self.kept.place.url, bytes })
    }
}

/// A process that drives a run goes on writing.
async fn refuse_driven(store: &Arc<dyn Store>) -> Result<(), Failure> {
    let context = Context::system(Arc::clone(store));
    let query = RunQuery { status: vec![RunStatus::InProgress], ..RunQuery::default() };
    let runs = store.list(query).await?.into_iter().filter(|run| run.kind != RunKind::Workspace);
    for run in runs {
        if LeaseWatch::default().look(&context, &run.id, LeaseOptions::default().ttl).await? == Standing::Held {
            return Err(Failure::refused(format!("run {} of this store is at work", run.id))
                .hint("nothing was removed; stop it first, or wait until it is done."));
        }
    }
    Ok(())
}

/// Makes a store that of another folder: the one in which the command is called, if none is named.
pub async fn give(app: &App, which: &str, folder: Option<&Path>) -> Result<StoreView, Failure> {
    let kept = find(app, which)?;
    let folder: PathBuf = match folder {
        Some(folder) => app.path(folder),
        None => app.path(Path::new("")),
    };
    let folder = folder
        .canonicalize()
        .map_err(|error| Failure::fixable(format!("can't find {}", folder.display())).because(&error))?;
    // Beside an encrypted store its places are sealed, so its key is needed.
    let store = app.open(&kept.place, Access::Look).await?;
    app.surroundings.give(&kept, &folder, store.hashing())?;
    store.close().await?;
    view(app, &kept).await
}
