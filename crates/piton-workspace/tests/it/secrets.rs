//! Secrets in files, as the store's policy says. F11, decision 8: files are captured, or left out and listed.

use std::sync::Arc;

use piton_store::{RedactedStore, Redaction, RedactionPolicy, SecretFiles, Store};
use piton_store_objects::ObjectStore;
use piton_workspace::{Reason, Saved};

use crate::world::World;

const CANARY: &str = "canary-Zk49_sings";

fn world(files: SecretFiles) -> (World, Arc<dyn Store>) {
    let below: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let policy = RedactionPolicy::default().with_secret("CANARY", CANARY).with_files(files);
    let redaction = Arc::new(Redaction::new(&policy).unwrap());
    let world = World::with_store(Arc::new(RedactedStore::new(Arc::clone(&below), redaction)));
    world.write("harmless", "nothing here");
    world.write("known", format!("key = {CANARY}\n"));
    world.write("formats", format!("aws = AKIA{}\n", "ABCDEFGHIJ234567"));
    let mut large = vec![b'x'; 3 << 20];
    large[2_000_000..2_000_000 + CANARY.len()].copy_from_slice(CANARY.as_bytes());
    world.write("large", large);
    (world, below)
}

fn names(saved: &Saved) -> Vec<String> {
    saved.secrets.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_with_secrets_are_captured_and_reported() {
    let (world, _) = world(SecretFiles::Report);
    let saved = world.save("first").await;
    assert_eq!(names(&saved), ["formats", "known", "large"]);
    assert_eq!((saved.snapshot.files, saved.snapshot.excluded), (4, 0));
    world.write("known", "changed");
    world.restore(&saved.checkpoint).await.unwrap();
    assert_eq!(world.read("known"), format!("key = {CANARY}\n"), "its bytes are its bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_with_secrets_are_left_out_and_listed() {
    let (world, below) = world(SecretFiles::Exclude);
    let saved = world.save("first").await;
    assert_eq!(names(&saved), ["formats", "known", "large"]);
    let excluded = world.workspace().excluded(saved.snapshot).await.unwrap();
    let excluded: Vec<_> = excluded.into_iter().map(|(path, reason)| (path.to_string(), reason)).collect();
    assert_eq!(excluded, ["formats", "known", "large"].map(|name| (name.to_owned(), Reason::Secret)));
    // Nothing of them is in the store, in packs neither.
    let id = below.hashing().blob(format!("key = {CANARY}\n").as_bytes());
    assert_eq!(below.locate(&[id]).await.unwrap(), [None]);
    let again = world.save("again").await;
    assert_eq!((again.changed, names(&again).len()), (Some(false), 3), "they are looked at each time");
    world.write("known", "the secret is gone");
    let clean = world.save("clean").await;
    assert_eq!((names(&clean), clean.snapshot.excluded), (vec!["formats".to_owned(), "large".to_owned()], 2));
    // What isn't in a snapshot stays as it is.
    world.restore(&saved.checkpoint).await.unwrap();
    assert!(world.has("formats") && world.has("large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_policy_files_are_not_looked_at() {
    let (world, _) = world(SecretFiles::Capture);
    let saved = world.save("first").await;
    assert_eq!((names(&saved).len(), saved.snapshot.files), (0, 4));
}
