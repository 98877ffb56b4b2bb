//! What runs that wait for people take up while nothing of them goes on: counted by the allocator, so in a process of
//! its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait; every call is passed on unchanged")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use piton_flow::{Document, ExecutionStatus, Format, WorkflowHandle, WorkflowRunner};
use piton_store::Store;
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_types::Durability;

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DOCUMENT: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: ask, data: {type: human-input, prompt: 'Ship it?', variables: [{name: ok, type: boolean, required: true}]}}
  - {id: out, data: {type: end, outputs: [{variable: ok, value_selector: [ask, ok]}]}}
edges: [{source: in, target: ask}, {source: ask, target: out}]
";

/// As the issue demands: a run that waits takes up less than this.
const EACH: i64 = 20 << 10;
const RUNS: i64 = 100;

async fn wait(store: &Arc<dyn Store>, n: i64) -> WorkflowHandle {
    let document = Document::parse(DOCUMENT, Format::Yaml).unwrap();
    let runner = WorkflowRunner::builder(document)
        .store(Arc::clone(store))
        .durability(Durability::Relaxed)
        .workflow_id(format!("run-{n}"));
    let handle = runner.build().run().await.unwrap();
    assert!(matches!(handle.wait_or_paused().await, ExecutionStatus::Paused { .. }));
    handle
}

/// Runs that wait are unloaded: each takes less than 20 KB, and allocates, which is to say does, nothing at all.
#[test]
fn a_run_that_waits_takes_little_memory_and_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(folder.path(), &FolderOptions::default()).unwrap());
        // What there is once, however many wait.
        let mut handles = vec![wait(&store, 0).await];
        tokio::time::sleep(Duration::from_millis(200)).await;
        let before = LIVE.load(Ordering::Relaxed);
        for n in 1..=RUNS {
            handles.push(wait(&store, n).await);
        }
        // A question is open a moment before its run is put aside.
        let mut each = i64::MAX;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            each = (LIVE.load(Ordering::Relaxed) - before) / RUNS;
            if each < EACH {
                break;
            }
        }
        println!("{each} bytes for a run that waits");
        assert!(each < EACH, "{each} bytes for a run that waits");

        let calls = CALLS.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let calls = CALLS.load(Ordering::Relaxed) - calls;
        assert!(calls < 20, "{calls} allocations while {RUNS} runs wait");
    });
}
