//! What a list costs, and a search for blobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use piton_store::{Blobs as _, Hashing, Log as _, PackId, Pin, RunIndex as _, RunQuery, StoreError, async_trait};
use piton_store_objects::{Listed, MemoryObjects, Object, ObjectStore, Objects, Part, Version};
use piton_types::{BlobId, Durability, RunStatus};

use crate::support::{Line, block_on};

/// Objects whose reads are counted.
#[derive(Debug, Default)]
struct Counted {
    objects: MemoryObjects,
    reads: AtomicU64,
    /// As if each call asked another machine.
    is_remote: bool,
}

#[async_trait]
impl Objects for Counted {
    async fn create(&self, name: &str, content: Bytes, durability: Durability) -> Result<bool, StoreError> {
        self.objects.create(name, content, durability).await
    }

    async fn get(&self, name: &str, part: Part) -> Result<Option<Object>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.objects.get(name, part).await
    }

    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.objects.list(folder, after, limit).await
    }

    async fn replace(&self, name: &str, new: Bytes, old: &Version, durability: Durability) -> Result<bool, StoreError> {
        self.objects.replace(name, new, old, durability).await
    }

    async fn delete(&self, name: &str, version: Option<&Version>, durability: Durability) -> Result<bool, StoreError> {
        self.objects.delete(name, version, durability).await
    }

    fn is_persistent(&self) -> bool {
        self.objects.is_persistent()
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn url(&self) -> String {
        self.objects.url()
    }
}

/// A list looks once for the runs, and twice at each one whose id is admitted: at its newest entry, however long its log
/// is, and whether the handle has seen the run before or not. Pages and other filters don't change that.
#[test]
fn a_list_looks_twice_at_each_run() {
    const RUNS: u64 = 30;
    block_on(async {
        let objects = Arc::new(Counted::default());
        let open = || ObjectStore::open(Arc::clone(&objects) as Arc<dyn Objects>, true);
        let writer = open().await.unwrap();
        for number in 0..RUNS {
            let mut line = Line::relaxed(&format!("run-{number:02}"));
            let first = line.next();
            writer.append(vec![first.clone()]).await.unwrap();
            line.advance(&first);
            line.grow(&writer, if number == 7 { 300 } else { 1 }).await;
        }
        let reader = open().await.unwrap();
        let page = RunQuery { limit: Some(5), ..RunQuery::default() };
        let labelled = RunQuery { labels: ["a label".to_owned()].into(), text: "run-1".to_owned(), ..page.clone() };
        let prefix = RunQuery { id_prefix: "run-1".to_owned(), ..RunQuery::default() };
        for (query, found, looked_at) in [(&page, 5, RUNS), (&page, 5, RUNS), (&labelled, 5, RUNS), (&prefix, 10, 10)] {
            for store in [&reader, &writer] {
                let before = objects.reads.load(Ordering::Relaxed);
                assert_eq!(store.list(query.clone()).await.unwrap().len(), found);
                assert_eq!(objects.reads.load(Ordering::Relaxed) - before, 1 + 2 * looked_at, "{query:?}");
            }
        }
    });
}

impl Counted {
    fn remote() -> Arc<Self> {
        Arc::new(Self { is_remote: true, ..Self::default() })
    }

    /// How many reads a piece of work makes.
    async fn reads_of<T>(&self, work: impl Future<Output = T>) -> (T, u64) {
        let before = self.reads.load(Ordering::Relaxed);
        (work.await, self.reads.load(Ordering::Relaxed) - before)
    }
}

/// Where every look is a call, a list is one for the rows, and looks only at what moved. A fresh handle needs one more for
/// the rows of all runs at rest.
#[test]
fn a_remote_list_looks_at_what_moved() {
    const RUNS: usize = 200;
    block_on(async {
        let objects = Counted::remote();
        let open = || ObjectStore::open(Arc::clone(&objects) as Arc<dyn Objects>, true);
        let (writer, reader) = (open().await.unwrap(), open().await.unwrap());
        let end = async |line: &mut Line| {
            let mut last = line.next();
            let mut row = writer.summary(&line.run).await.unwrap().unwrap();
            row.status = RunStatus::Completed;
            last.index = Some(row);
            writer.append(vec![last.clone()]).await.unwrap();
            line.advance(&last);
        };
        let mut lines = Vec::new();
        for number in 0..RUNS {
            let mut line = Line::relaxed(&format!("run-{number:03}"));
            line.grow(&writer, 3).await;
            end(&mut line).await;
            lines.push(line);
        }
        let list = async |store: &ObjectStore, reads: u64| {
            let (rows, made) = objects.reads_of(store.list(RunQuery::default())).await;
            let rows = rows.unwrap();
            assert_eq!(rows.len(), RUNS);
            assert!(made <= reads, "{made} reads instead of {reads}");
            rows
        };
        list(&reader, 2 + RUNS as u64 + 2).await;
        list(&reader, 1).await;
        let fresh = open().await.unwrap();
        list(&fresh, 2).await;
        // One that begins again is looked at until it rests.
        lines[7].grow(&writer, 1).await;
        let mut moving = lines[7].next();
        let mut row = writer.summary(&lines[7].run).await.unwrap().unwrap();
        row.status = RunStatus::InProgress;
        moving.index = Some(row);
        writer.append(vec![moving.clone()]).await.unwrap();
        lines[7].advance(&moving);
        for _ in 0..2 {
            let rows = list(&reader, 5).await;
            let row = rows.iter().find(|row| row.id == lines[7].run).unwrap();
            assert_eq!(row.status, RunStatus::InProgress);
        }
        end(&mut lines[7]).await;
        list(&reader, 2).await;
        list(&reader, 1).await;
    });
}

/// A row never says less than the log, whichever handles append in turns and whoever is slow.
#[test]
fn a_remote_row_is_never_behind_its_log() {
    block_on(async {
        let objects = Counted::remote();
        let open = || ObjectStore::open(Arc::clone(&objects) as Arc<dyn Objects>, true);
        let stores = [open().await.unwrap(), open().await.unwrap(), open().await.unwrap()];
        let mut line = Line::new("one");
        line.grow(&stores[0], 1).await;
        for turn in 1..60_usize {
            let writer = &stores[(turn * turn / 3) % 3];
            let mut next = line.next();
            let mut row = writer.summary(&line.run).await.unwrap().unwrap();
            row.status = [RunStatus::InProgress, RunStatus::Completed, RunStatus::Waiting][(turn / 2) % 3];
            next.index = Some(row);
            writer.append(vec![next.clone()]).await.unwrap();
            line.advance(&next);
            for reader in &stores {
                let rows = reader.list(RunQuery::default()).await.unwrap();
                assert_eq!(rows[0], reader.summary(&line.run).await.unwrap().unwrap(), "turn {turn}");
                assert_eq!(rows[0].updated_at, next.at, "turn {turn}");
            }
        }
    });
}

/// Where every look is a call, a search for blobs that are known makes none, one for others makes one, and a fresh handle
/// reads an index instead of every pack.
#[test]
fn a_remote_search_for_blobs_follows_an_index() {
    const PACKS: usize = 200;
    block_on(async {
        let objects = Counted::remote();
        let open = || ObjectStore::open(Arc::clone(&objects) as Arc<dyn Objects>, true);
        let [writer, other] = [open().await.unwrap(), open().await.unwrap()];
        let blob = |text: &str| Hashing::PLAIN.blob(text.as_bytes());
        let stage = async |store: &ObjectStore, text: &str| -> (BlobId, PackId) {
            let bytes = Bytes::from(text.to_owned());
            let pack = Hashing::PLAIN.pack(&bytes);
            store.stage(pack, bytes, &[blob(text)], Pin::new()).await.unwrap();
            (blob(text), pack)
        };
        let mut staged = Vec::new();
        for number in 0..PACKS {
            staged.push(stage(if number % 3 == 0 { &other } else { &writer }, &format!("pack {number}")).await);
        }
        let ids: Vec<BlobId> = staged.iter().map(|(blob, _)| *blob).collect();
        let places: Vec<Option<PackId>> = staged.iter().map(|(_, pack)| Some(*pack)).collect();
        let fresh = open().await.unwrap();
        let unknown = [blob("nowhere")];
        let (found, reads) = objects.reads_of(fresh.locate(&unknown)).await;
        assert_eq!(found.unwrap(), [None]);
        assert!(reads <= 2 + 64, "{reads} reads for {PACKS} packs");
        for store in [&fresh, &writer, &other] {
            assert_eq!(store.locate(&ids).await.unwrap(), places);
            let (found, reads) = objects.reads_of(store.locate(&ids)).await;
            assert_eq!((found.unwrap(), reads), (places.clone(), 0));
            let (found, reads) = objects.reads_of(store.locate(&unknown)).await;
            assert_eq!((found.unwrap(), reads), (vec![None], 1));
        }
        let (late, pack) = stage(&other, "a late one").await;
        let (found, reads) = objects.reads_of(fresh.locate(&[late])).await;
        assert_eq!((found.unwrap(), reads), (vec![Some(pack)], 3), "the list, what is said of it, whether it is there");
    });
}
