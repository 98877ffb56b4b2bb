//! Encryption at rest, for every store: a decorator that seals what goes down and opens what comes up.
//!
//! Sealed are entries, packs, segments, and the names, folders and labels of runs. In clear stay what a store needs to do
//! its work and what sizes give away anyway: ids, states, kinds and times of runs, numbers and fences of entries,
//! who holds a lease, how many records there are and how long each is. Names of blobs, hashes of entries and the
//! places where values are cut depend on the key, so that an attacker can't tell by them whether a known content is
//! stored.
//!
//! Invariant: a record that doesn't open under the store's key, at exactly its place, is `Corrupt`. Nothing is
//! ever read as plaintext.

mod beside;
mod checkpoints;
mod cipher;
mod key;
mod ring;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use piton_types::{BlobId, Fence, Holder, Random, RunId, RunSummary};

pub use checkpoints::EncryptedCheckpointStore;
pub use key::Key;
pub use ring::is_encrypted;

use crate::{
    Blobs, Changes, Commit, Cursor, Fold, Hashing, Head, Leases, Log, PackId, PackInfo, Pin, Record, RunIndex,
    RunQuery, Section, Segment, SegmentInfo, Span, Store, StoreError, Upkeep, Usage, forward,
};
use cipher::{Cipher, Place};

/// A store whose content is encrypted.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use std::sync::Arc;
/// use piton_store::{EncryptedStore, Key, Store as _, StoreError};
/// use piton_store_objects::ObjectStore;
/// # struct Fixed; impl piton_types::Random for Fixed { fn fill(&self, b: &mut [u8]) { b.fill(7) } }
/// # let random = Arc::new(Fixed);
///
/// let below = Arc::new(ObjectStore::in_memory());
/// let key = Key::generate(&*random);
/// EncryptedStore::create(below.clone(), &key, random.clone()).await.unwrap();
/// let store = EncryptedStore::open(below.clone(), &key, random.clone()).await.unwrap();
/// assert_eq!(store.usage().await.unwrap().runs, 0);
///
/// let other = Key::passphrase("a guess").unwrap();
/// let refused = EncryptedStore::open(below, &other, random).await;
/// assert!(matches!(refused, Err(StoreError::Locked { .. })));
/// # });
/// ```
pub struct EncryptedStore {
    inner: Arc<dyn Store>,
    cipher: Cipher,
    hashing: Hashing,
}

impl EncryptedStore {
    /// Turns encryption on in a store that holds nothing yet, for good, and opens it. `random` must be unpredictable:
    /// keys are made of it.
    pub async fn create(inner: Arc<dyn Store>, key: &Key, random: Arc<dyn Random>) -> Result<Self, StoreError> {
        if inner.folding().is_none() || inner.upkeep().is_none() {
            return Err(StoreError::Unsupported { store: "a store without history", what: "be encrypted" });
        }
        ring::create(&*inner, key, &*random).await?;
        Self::open(inner, key, random).await
    }

    /// Opens an encrypted store. With a wrong key that is `Locked`; a store that isn't encrypted is `Invalid`.
    /// Neither changes anything.
    pub async fn open(inner: Arc<dyn Store>, key: &Key, random: Arc<dyn Random>) -> Result<Self, StoreError> {
        if !is_encrypted(&*inner).await? {
            return Err(StoreError::Invalid { what: inner.url(), detail: "it isn't encrypted".to_owned() });
        }
        let opened = ring::open(&*inner, key).await?;
        let (cipher, hashing) = Cipher::new(&opened.data, opened.store, random);
        Ok(Self { inner, cipher, hashing })
    }

    /// Turns encryption on in a store that holds nothing yet, with the very keys of another: records of one are records
    /// of the other. For a caller that replaces a store.
    pub async fn create_like(
        inner: Arc<dyn Store>,
        other: &dyn Store,
        key: &Key,
        random: Arc<dyn Random>,
    ) -> Result<Self, StoreError> {
        ring::adopt(&*inner, other, key, &*random).await?;
        Self::open(inner, key, random).await
    }

    /// Puts `new` in the place of `old`. No record is touched: only the store's own key is wrapped anew. A person who
    /// has a copy of the store from before can still open that copy with `old`. A person who once had the store's own
    /// key still has it.
    pub async fn rotate(inner: &dyn Store, old: &Key, new: &Key, random: &dyn Random) -> Result<(), StoreError> {
        ring::rotate(inner, old, new, random).await
    }

    /// The ring isn't a run of the store's user.
    fn check(run: &RunId) -> Result<(), StoreError> {
        match *run == ring::run() {
            false => Ok(()),
            true => Err(StoreError::no_run(run)),
        }
    }

    fn seal_text(&self, place: Place<'_>, text: &str) -> String {
        STANDARD_NO_PAD.encode(self.cipher.seal(place, text.as_bytes()))
    }

    fn open_text(&self, place: Place<'_>, text: &str) -> Result<String, StoreError> {
        // What isn't base64 isn't sealed either.
        let sealed = STANDARD_NO_PAD.decode(text).unwrap_or_default();
        let plain = self.cipher.open(place, sealed.into())?;
        String::from_utf8(plain.into()).map_err(|_| StoreError::corrupt("an index row", "a text isn't Unicode"))
    }

    fn seal_row(&self, row: RunSummary) -> RunSummary {
        let name = self.seal_text(Place::Name(&row.id), &row.name);
        let folder = row.folder.as_ref().map(|folder| self.seal_text(Place::Folder(&row.id), folder));
        let labels = row.labels.iter().map(|label| self.seal_text(Place::Label(&row.id), label)).collect();
        RunSummary { name, folder, labels, ..row }
    }

    fn open_row(&self, row: RunSummary) -> Result<RunSummary, StoreError> {
        let name = self.open_text(Place::Name(&row.id), &row.name)?;
        let folder = row.folder.as_ref().map(|folder| self.open_text(Place::Folder(&row.id), folder)).transpose()?;
        let labels =
            row.labels.iter().map(|label| self.open_text(Place::Label(&row.id), label)).collect::<Result<_, _>>()?;
        Ok(RunSummary { name, folder, labels, ..row })
    }

    /// A commit as the store below gets it.
    fn seal(&self, commit: Commit) -> Result<Commit, StoreError> {
        let run = &commit.run;
        if *run == ring::run() {
            let detail = "an encrypted store keeps its keys under this id".to_owned();
            return Err(StoreError::Invalid { what: format!("run id {run}"), detail });
        }
        let (entry, pack) = self.cipher.seal_entry(run, commit.seq, &commit.entry, &commit.pack);
        let index = commit.index.clone().map(|row| self.seal_row(row));
        Ok(Commit { entry, pack, index, ..commit })
    }
}

#[async_trait]
impl Log for EncryptedStore {
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        let sealed = commits.into_iter().map(|commit| self.seal(commit)).collect::<Result<_, _>>()?;
        self.inner.append(sealed).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        match Self::check(run) {
            Ok(()) => self.inner.head(run).await,
            Err(_) => Ok(None),
        }
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        Self::check(run)?;
        let open = |record: Record| {
            let entry = self.cipher.open(Place::Entry(run, record.seq), record.entry)?;
            let pack = match record.pack.is_empty() {
                true => Bytes::new(),
                false => self.cipher.open(Place::Pack(run, record.seq), record.pack)?,
            };
            Ok(Record { entry, pack, ..record })
        };
        self.inner.read(run, span).await?.into_iter().map(open).collect()
    }
}

#[async_trait]
impl Fold for EncryptedStore {
    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        Self::check(run)?;
        self.inner.segments(run).await
    }

    async fn section(&self, run: &RunId, segment: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        Self::check(run)?;
        let sealed = self.inner.section(run, segment, section).await?;
        self.cipher.open(Place::Section(run, segment, section), sealed)
    }

    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError> {
        Self::check(run)?;
        let info = segment.info;
        let seal = |section, plain: &Bytes| self.cipher.seal(Place::Section(run, info, section), plain);
        let entries = seal(Section::Entries, &segment.entries);
        let index = seal(Section::Index, &segment.index);
        let nodes = seal(Section::Nodes, &segment.nodes);
        self.inner.fold(run, Segment { info, entries, index, nodes }).await
    }
}

#[async_trait]
impl Blobs for EncryptedStore {
    forward! { pin locate }

    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError> {
        self.inner.stage(id, self.cipher.seal(Place::Staged(id), &pack), ids, pin).await
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.cipher.open(Place::Staged(pack), self.inner.pack(pack).await?)
    }
}

#[async_trait]
impl Upkeep for EncryptedStore {
    forward! { pack_ids condemn pardon sweep inspect totals }

    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        Self::check(run)?;
        self.inner.remove(run, head).await
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        let mut infos = self.inner.packs(after, limit).await?;
        infos.iter_mut().for_each(|info| info.size = info.size.saturating_sub(cipher::OVERHEAD as u64));
        Ok(infos)
    }

    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        let mut runs = self.inner.run_ids().await?;
        runs.retain(|run| Self::check(run).is_ok());
        Ok(runs)
    }

    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let sealed = self.inner.note(key).await?;
        sealed.map(|sealed| self.cipher.open(Place::Note(key), sealed)).transpose()
    }

    async fn notes(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        let open = |(key, sealed): (String, Bytes)| {
            let note = self.cipher.open(Place::Note(&key), sealed)?;
            Ok((key, note))
        };
        self.inner.notes(prefix).await?.into_iter().map(open).collect()
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        let sealed = note.map(|note| self.cipher.seal(Place::Note(key), &note));
        self.inner.set_note(key, sealed).await
    }
}

#[async_trait]
impl RunIndex for EncryptedStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        match Self::check(run) {
            Ok(()) => self.inner.summary(run).await?.map(|row| self.open_row(row)).transpose(),
            Err(_) => Ok(None),
        }
    }

    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        // The store below can't read names, labels and the names of folders. One more than wanted, in case the ring is among them.
        let wanted = query.clone();
        let is_plain = query.folders.is_empty() && query.labels.is_empty() && query.text.is_empty();
        let below = query.limit.filter(|_| is_plain).map(|limit| limit.saturating_add(1));
        let query =
            RunQuery { limit: below, folders: Vec::new(), labels: BTreeSet::new(), text: String::new(), ..query };
        let rows = self.inner.list(query).await?;
        let own = rows.into_iter().filter(|row| Self::check(&row.id).is_ok()).map(|row| self.open_row(row));
        own.filter(|row| row.as_ref().map_or(true, |row| wanted.admits(row)))
            .take(wanted.limit.unwrap_or(usize::MAX))
            .collect()
    }
}

#[async_trait]
impl Leases for EncryptedStore {
    forward! { lease release }

    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError> {
        Self::check(run)?;
        self.inner.beat(run, fence, holder).await
    }
}

#[async_trait]
impl Changes for EncryptedStore {
    async fn changed(&self, after: Cursor, limit: usize) -> Result<(Vec<RunId>, Cursor), StoreError> {
        let changes = self.inner.changes().ok_or(NO_CHANGES)?;
        let (mut runs, mut cursor) = changes.changed(after, limit).await?;
        let found = runs.len();
        runs.retain(|run| Self::check(run).is_ok());
        if runs.len() < found {
            // Another one in the place of the ring.
            let (next, end) = changes.changed(cursor, 1).await?;
            runs.extend(next);
            cursor = end;
        }
        Ok((runs, cursor))
    }

    async fn now(&self) -> Result<Cursor, StoreError> {
        self.inner.changes().ok_or(NO_CHANGES)?.now().await
    }
}

const NO_CHANGES: StoreError = StoreError::Unsupported { store: "this store", what: "tell what moved" };

#[async_trait]
impl Store for EncryptedStore {
    forward! { capabilities redaction syncs url close folding leases upkeep queue }

    fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    fn changes(&self) -> Option<&dyn Changes> {
        self.inner.changes().map(|_| self as &dyn Changes)
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        let usage = self.inner.usage().await?;
        Ok(Usage { runs: usage.runs.saturating_sub(1), ..usage })
    }
}

impl std::fmt::Debug for EncryptedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncryptedStore").field("url", &self.url()).finish_non_exhaustive()
    }
}
