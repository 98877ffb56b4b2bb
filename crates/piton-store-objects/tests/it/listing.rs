//! What a list costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use piton_store::{Log as _, RunIndex as _, RunQuery, StoreError, async_trait};
use piton_store_objects::{Listed, MemoryObjects, Object, ObjectStore, Objects, Part, Version};
use piton_types::Durability;

use crate::support::{Line, block_on};

/// Objects whose reads are counted.
#[derive(Debug, Default)]
struct Counted {
    objects: MemoryObjects,
    reads: AtomicU64,
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
