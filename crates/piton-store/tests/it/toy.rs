//! A store over nothing but 'create if absent' and 'get': proof of how little a store has to be. It offers nothing beyond
//! the core, never deletes, and its handles share no lock.
//!
//! ```text
//! entry/RUN/N      a commit that begins with entry N
//! run/N            the id of the Nth run; it exists if it has entry 0
//! pack/HASH        a pack and the ids of its blobs
//! staged/N         the name of the Nth pack
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use piton_store::conformance::Fixture;
use piton_store::{
    Blobs, Capabilities, Commit, Hashing, Head, Log, PackId, Pin, Record, RunIndex, RunQuery, Span, Store, StoreError,
    Usage, async_trait,
};
use piton_types::{BlobId, RunId, RunSummary, Seq};

/// What is kept under a name.
#[derive(Clone)]
enum Object {
    /// Commits that follow each other, and the run's row after them.
    Commits(Arc<Vec<Commit>>, RunSummary),
    Run(RunId),
    Pack(Bytes, Vec<BlobId>),
    Staged(PackId),
}

/// The lower layer, with its two operations.
#[derive(Default)]
struct Objects(Mutex<HashMap<String, Object>>);

impl Objects {
    fn create(&self, name: String, object: Object) -> bool {
        let mut objects = self.0.lock().unwrap();
        let is_free = !objects.contains_key(&name);
        if is_free {
            objects.insert(name, object);
        }
        is_free
    }

    fn get(&self, name: &str) -> Option<Object> {
        self.0.lock().unwrap().get(name).cloned()
    }
}

struct Toy(Arc<Objects>);

impl Toy {
    fn commits(&self, run: &RunId, seq: u32) -> Option<(Arc<Vec<Commit>>, RunSummary)> {
        match self.0.get(&format!("entry/{run}/{seq}"))? {
            Object::Commits(commits, row) => Some((commits, row)),
            _ => None,
        }
    }

    /// Every commit of a run, in order, and its row; `None` if there is no such run.
    fn log(&self, run: &RunId) -> Option<(Vec<Commit>, RunSummary)> {
        let (mut log, mut newest) = (Vec::new(), None);
        while let Some((commits, row)) = self.commits(run, u32::try_from(log.len()).unwrap()) {
            log.extend(commits.iter().cloned());
            newest = Some(row);
        }
        Some((log, newest?))
    }

    /// Adds to a list that only grows, unless it is there.
    fn add(&self, list: &str, object: &Object, is_it: impl Fn(&Object) -> bool) {
        for n in 0.. {
            let name = format!("{list}/{n}");
            match self.0.get(&name) {
                Some(there) if is_it(&there) => return,
                Some(_) => {}
                None if self.0.create(name.clone(), object.clone()) => return,
                // Another handle was faster, perhaps with the same.
                None if self.0.get(&name).is_some_and(|there| is_it(&there)) => return,
                None => {}
            }
        }
    }

    fn listed(&self, list: &str) -> impl Iterator<Item = Object> {
        (0..).map_while(move |n| self.0.get(&format!("{list}/{n}")))
    }

    fn staged(&self, pack: PackId) -> Option<(Bytes, Vec<BlobId>)> {
        match self.0.get(&format!("pack/{pack}"))? {
            Object::Pack(bytes, ids) => Some((bytes, ids)),
            _ => None,
        }
    }
}

fn head(commit: &Commit) -> Head {
    Head { seq: commit.seq, hash: commit.hash, fence: commit.fence }
}

#[async_trait]
impl Log for Toy {
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        Commit::check_together(&commits)?;
        let (Some(first), Some(last)) = (commits.first().cloned(), commits.last()) else { return Ok(()) };
        let before = self.log(&first.run);
        first.check(before.as_ref().and_then(|(log, _)| log.last()).map(head))?;
        if let Some(pack) = commits.iter().flat_map(|commit| &commit.staged).find(|pack| self.staged(**pack).is_none())
        {
            return Err(StoreError::PackGone { pack: *pack });
        }
        let index = commits.iter().rev().find_map(|commit| commit.index.clone());
        let mut row = index.or(before.map(|(_, row)| row)).expect("checked");
        row.updated_at = last.at;
        if first.seq == Seq(0) {
            let is_it = |there: &Object| matches!(there, Object::Run(run) if *run == first.run);
            self.add("run", &Object::Run(first.run.clone()), is_it);
        }
        let name = format!("entry/{}/{}", first.run, first.seq);
        if self.0.create(name, Object::Commits(Arc::new(commits), row)) {
            return Ok(());
        }
        let head = self.head(&first.run).await?;
        first.check(head)?;
        Err(StoreError::Conflict { run: first.run, wanted: first.seq, head })
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        Ok(self.log(run).and_then(|(log, _)| log.last().map(head)))
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        let (log, _) = self.log(run).ok_or_else(|| StoreError::no_run(run))?;
        let wanted = log.into_iter().filter(|commit| (span.from..=span.to).contains(&commit.seq));
        let mut records: Vec<_> = wanted
            .map(|commit| Record {
                seq: commit.seq,
                hash: commit.hash,
                fence: commit.fence,
                entry: commit.entry,
                pack: if span.packs { commit.pack } else { Bytes::new() },
            })
            .collect();
        if span.newest_first {
            records.reverse();
        }
        records.truncate(span.limit);
        Ok(records)
    }
}

#[async_trait]
impl Blobs for Toy {
    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], _: Pin) -> Result<(), StoreError> {
        self.0.create(format!("pack/{id}"), Object::Pack(pack, ids.to_vec()));
        self.add("staged", &Object::Staged(id), |there| matches!(there, Object::Staged(pack) if *pack == id));
        Ok(())
    }

    /// Nothing is ever deleted.
    async fn pin(&self, packs: &[PackId], _: Pin) -> Result<(), StoreError> {
        match packs.iter().find(|pack| self.staged(**pack).is_none()) {
            Some(pack) => Err(StoreError::PackGone { pack: *pack }),
            None => Ok(()),
        }
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        let mut places = BTreeMap::new();
        for staged in self.listed("staged") {
            if let Object::Staged(pack) = staged
                && let Some((_, ids)) = self.staged(pack)
            {
                places.extend(ids.into_iter().map(|id| (id, pack)));
            }
        }
        Ok(ids.iter().map(|id| places.get(id).copied()).collect())
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.staged(pack).map(|(bytes, _)| bytes).ok_or_else(|| StoreError::no_pack(pack))
    }
}

#[async_trait]
impl RunIndex for Toy {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        Ok(self.log(run).map(|(_, row)| row))
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        let runs = self.listed("run").filter_map(|run| match run {
            Object::Run(run) => self.log(&run).map(|(_, row)| row),
            _ => None,
        });
        let behind =
            |row: &RunSummary| query.after.as_ref().is_none_or(|(at, id)| (row.updated_at, &row.id) < (*at, id));
        let mut found: Vec<_> = runs.filter(|row| query.admits(row) && behind(row)).collect();
        found.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        found.truncate(query.limit.unwrap_or(usize::MAX));
        Ok(found)
    }
}

#[async_trait]
impl Store for Toy {
    fn capabilities(&self) -> Capabilities {
        Capabilities { persistent: false, ..Capabilities::ALL }
    }

    fn hashing(&self) -> &Hashing {
        &Hashing::PLAIN
    }

    fn url(&self) -> String {
        "toy:".to_owned()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        Ok(Usage { runs: self.list(RunQuery::default()).await?.len() as u64, bytes: 0 })
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Every handle is another.
#[derive(Default)]
struct Handles(Arc<Objects>);

#[async_trait]
impl Fixture for Handles {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Toy(Arc::clone(&self.0)))
    }
}

piton_store::conformance!(Handles::default(); core);
piton_log::conformance!(Handles::default());
