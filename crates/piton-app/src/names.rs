//! Names that a person can type: `guard-3`, `claude-2`, `flow-7`, counted per folder and kind. A run is given its name
//! when it is created and keeps it; no other run of the folder ever gets it, also when the run is gone.
//!
//! The name is a label in the run's row of the index. That two processes never give the same one is seen to by notes of
//! the store: who wants a name writes a note that says so, and then looks who else wants it. Of two that want it at once
//! at least one sees the other, and who sees another takes a later number: numbers may be left out, and none is given
//! twice. A run with an id that its user chose goes by that.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use piton_agents::Agent;
use piton_runtime::SystemRandom;
use piton_store::{
    Blobs, Bytes, Commit, Fold, Leases, Log, RunIndex, RunQuery, Store, StoreError, Upkeep, async_trait, forward,
};
use piton_types::{Random as _, RunId, RunKind, RunSummary};

/// Where the labels begin that say what a run is called here.
const NAME: &str = "piton.short=";
/// The same for the folder in which it is called so.
const SCOPE: &str = "piton.short.of=";
/// What the name of a folder's own log is.
const FILES: &str = "files";
/// So many notes of the names that were given last are kept: a process that was overtaken by as many others while it
/// looked for a free number is none that there will be.
const KEPT: u32 = 32;

/// What a run is called here: its short name, or its id if it has none.
pub fn short_of(run: &RunSummary) -> String {
    label(run, NAME).unwrap_or(run.id.as_str()).to_owned()
}

fn label<'a>(run: &'a RunSummary, kind: &str) -> Option<&'a str> {
    run.labels.iter().find_map(|label| label.strip_prefix(kind))
}

/// The labels of a run that its user gave it.
pub(crate) fn is_users(label: &str) -> bool {
    !label.starts_with(NAME) && !label.starts_with(SCOPE)
}

/// The folder in which names are counted, as labels say it: nothing in them tells the folder of an encrypted store.
pub(crate) fn scope(store: &dyn Store, folder: &str) -> String {
    store.hashing().blob(folder.as_bytes()).to_string()[..8].to_owned()
}

/// The runs of the store that are called so: that of the scope if there is one, else those of other folders.
pub(crate) async fn named(store: &dyn Store, scope: &str, name: &str) -> Result<Vec<RunSummary>, StoreError> {
    let query = |labels: &[String]| RunQuery { labels: labels.iter().cloned().collect(), ..RunQuery::default() };
    let (name, scope) = (format!("{NAME}{name}"), format!("{SCOPE}{scope}"));
    let here = store.list(query(&[name.clone(), scope])).await?;
    if here.is_empty() { store.list(query(&[name])).await } else { Ok(here) }
}

/// The names that were met so far, so that messages can say them instead of ids.
#[derive(Debug, Default)]
pub struct Names(Mutex<HashMap<String, String>>);

impl Names {
    fn learn(&self, run: &RunSummary, scope: &str) {
        // The name of another folder's run may be that of one here.
        if let (Some(name), Some(_)) = (label(run, NAME), label(run, SCOPE).filter(|of| *of == scope)) {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(run.id.to_string(), name.to_owned());
        }
    }

    /// What a run is called, as far as it was met.
    pub fn of(&self, run: &RunId) -> String {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(run.as_str()).map_or_else(|| run.to_string(), Clone::clone)
    }

    /// A text with names instead of the ids in it.
    pub fn shorten(&self, text: &str) -> String {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return text.to_owned();
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(start) = rest.find(is_part) {
            let (before, word) = rest.split_at(start);
            let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
            // A full stop may end the sentence.
            let word = word[..end].trim_end_matches('.');
            out.push_str(before);
            out.push_str(known.get(word).map_or(word, String::as_str));
            rest = &rest[start + word.len()..];
            if word.is_empty() {
                let dot = rest.len().min(1);
                out.push_str(&rest[..dot]);
                rest = &rest[dot..];
            }
        }
        out + rest
    }
}

/// A store in which each run is given a name when it is created.
pub(crate) struct NamedStore {
    inner: Arc<dyn Store>,
    /// The folder of the runs that belong to none.
    scope: String,
    names: Arc<Names>,
}

impl NamedStore {
    pub(crate) fn new(inner: Arc<dyn Store>, folder: &str, names: Arc<Names>) -> Self {
        let scope = scope(&*inner, folder);
        Self { inner, scope, names }
    }

    /// Gives a run that is about to be created its name.
    async fn give(&self, run: &mut RunSummary) -> Result<(), StoreError> {
        let carried = label(run, NAME).zip(label(run, SCOPE));
        let carried = carried.map(|(name, of)| (name.to_owned(), of.to_owned()));
        run.labels.retain(|label| is_users(label));
        let of = run.folder.as_deref().map_or_else(|| self.scope.clone(), |folder| scope(&*self.inner, folder));
        if run.kind == RunKind::Workspace {
            set(run, FILES, &of);
            return Ok(());
        }
        if self.inner.upkeep().is_none() {
            return Ok(());
        }
        // A copy keeps its name. A fork carries that of its parent, which has it.
        if let Some((name, of)) = carried
            && self.is_free(&name, &of).await?
            && self.claim(&name, &of, &run.id).await?
        {
            set(run, &name, &of);
            return Ok(());
        }
        let Some(kind) = kind(run) else { return Ok(()) };
        let mut number = self.last(kind, &of).await?;
        for tries in 1_u8.. {
            let mut chance = [0_u8];
            SystemRandom.fill(&mut chance);
            number += 1 + u32::from(chance[0] % tries);
            let name = format!("{kind}-{number}");
            // A user may have chosen this very id.
            let is_id = match name.parse() {
                Ok(id) => self.inner.summary(&id).await?.is_some(),
                Err(_) => false,
            };
            if !is_id && self.is_free(&name, &of).await? && self.claim(&name, &of, &run.id).await? {
                set(run, &name, &of);
                break;
            }
        }
        Ok(())
    }

    /// Whether no run that is there is called so.
    async fn is_free(&self, name: &str, of: &str) -> Result<bool, StoreError> {
        let labels = [format!("{NAME}{name}"), format!("{SCOPE}{of}")].into();
        Ok(self.inner.list(RunQuery { labels, limit: Some(1), ..RunQuery::default() }).await?.is_empty())
    }

    /// Whether the run is the only one that wants this name, now and later.
    async fn claim(&self, name: &str, of: &str, run: &RunId) -> Result<bool, StoreError> {
        let prefix = format!("name/{of}/{name}/");
        let own = format!("{prefix}{run}");
        self.inner.set_note(&own, Some(Bytes::from_static(b"wanted"))).await?;
        Ok(self.inner.notes(&prefix).await?.iter().all(|(key, _)| *key == own))
    }

    /// The highest number that was wanted so far. Notes of much older ones are dropped.
    async fn last(&self, kind: &str, of: &str) -> Result<u32, StoreError> {
        let prefix = format!("name/{of}/{kind}-");
        let number = |key: &str| key.strip_prefix(&prefix)?.split('/').next()?.parse::<u32>().ok();
        let notes = self.inner.notes(&prefix).await?;
        let last = notes.iter().filter_map(|(key, _)| number(key)).max().unwrap_or(0);
        for (key, _) in &notes {
            if number(key).is_some_and(|number| number.saturating_add(KEPT) < last) {
                self.inner.set_note(key, None).await?;
            }
        }
        Ok(last)
    }
}

fn set(run: &mut RunSummary, name: &str, of: &str) {
    run.labels.extend([format!("{NAME}{name}"), format!("{SCOPE}{of}")]);
}

/// What the name of a run begins with; `None` if it goes by the id that its user chose.
fn kind(run: &RunSummary) -> Option<&'static str> {
    let agents = Agent::ALL.map(Agent::short);
    match run.kind {
        RunKind::Guard => {
            let is_of = |agent: &&str| run.id.as_str().strip_prefix(*agent).is_some_and(|rest| rest.starts_with('-'));
            agents.into_iter().find(is_of).or_else(|| run.id.is_generated().then_some("guard"))
        }
        _ if !run.id.is_generated() => None,
        RunKind::Workflow => Some("flow"),
        _ => Some("run"),
    }
}

#[async_trait]
impl Log for NamedStore {
    forward! { head read }

    async fn append(&self, mut commits: Vec<Commit>) -> Result<(), StoreError> {
        let created = commits.first_mut().filter(|first| first.seq.0 == 0).and_then(|first| first.index.as_mut());
        if let Some(run) = created {
            self.give(run).await?;
            self.names.learn(run, &self.scope);
        }
        self.inner.append(commits).await
    }
}

#[async_trait]
impl RunIndex for NamedStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        let found = self.inner.summary(run).await?;
        found.iter().for_each(|run| self.names.learn(run, &self.scope));
        Ok(found)
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        let found = self.inner.list(query).await?;
        found.iter().for_each(|run| self.names.learn(run, &self.scope));
        Ok(found)
    }
}

#[async_trait]
impl Fold for NamedStore {
    forward! { segments section fold }
}

#[async_trait]
impl Blobs for NamedStore {
    forward! { stage pin locate pack pack_part }
}

#[async_trait]
impl Upkeep for NamedStore {
    forward! { remove packs pack_ids condemn pardon sweep note notes set_note inspect run_ids totals }
}

#[async_trait]
impl Leases for NamedStore {
    forward! { lease beat release }
}

#[async_trait]
impl Store for NamedStore {
    forward! { capabilities hashing redaction syncs url usage close folding leases upkeep changes queue }
}

impl fmt::Debug for NamedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedStore").field("url", &self.url()).field("scope", &self.scope).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
