//! What every place that keeps objects must do, on memory and on a folder.

use std::sync::Arc;

use bytes::Bytes;
use piton_store::StoreError;
use piton_store_objects::{FolderObjects, FolderOptions, Listed, MemoryObjects, Objects, Part, Version};
use piton_testing::scratch::Scratch;
use piton_types::Durability::{Durable, Relaxed};

use crate::support::block_on;

/// Runs a behaviour on each place. It is given two handles.
fn on_each<F: Future<Output = ()>>(behaviour: impl Fn([Arc<dyn Objects>; 2]) -> F) {
    let memory: Arc<dyn Objects> = Arc::new(MemoryObjects::new());
    block_on(behaviour([Arc::clone(&memory), memory]));
    let scratch = Scratch::in_memory();
    let open = || -> Arc<dyn Objects> {
        Arc::new(FolderObjects::open(scratch.join("objects"), &FolderOptions::default()).unwrap())
    };
    block_on(behaviour([open(), open()]));
    #[cfg(feature = "redis")]
    piton_store::conformance::runtime().block_on(async {
        let prefix = crate::redis::prefix();
        behaviour([crate::redis::objects(&prefix).await, crate::redis::objects(&prefix).await]).await;
    });
    #[cfg(feature = "cloud")]
    piton_store::conformance::runtime().block_on(async {
        let prefix = crate::cloud::prefix();
        behaviour([crate::cloud::objects(&prefix), crate::cloud::objects(&prefix)]).await;
    });
}

#[test]
fn an_object_is_created_once() {
    on_each(|[one, two]| async move {
        assert_eq!(one.get("a/b.json", Part::Whole).await.unwrap(), None);
        assert!(one.create("a/b.json", "first".into(), Durable).await.unwrap());
        assert!(!two.create("a/b.json", "second".into(), Relaxed).await.unwrap());
        assert_eq!(two.get("a/b.json", Part::Whole).await.unwrap().unwrap().bytes, "first");
        assert!(two.exists("a/b.json").await.unwrap() && !two.exists("a/c").await.unwrap());
        let racers: Vec<_> = (0..16)
            .map(|n| {
                let objects = Arc::clone(if n % 2 == 0 { &one } else { &two });
                tokio::spawn(async move { objects.create("raced/x", n.to_string().into(), Relaxed).await.unwrap() })
            })
            .collect();
        let mut winners = 0;
        for racer in racers {
            winners += u32::from(racer.await.unwrap());
        }
        assert_eq!(winners, 1);
    });
}

#[test]
fn parts_are_what_they_say() {
    on_each(|[one, _]| async move {
        one.create("x", "0123456789".into(), Relaxed).await.unwrap();
        let part = async |part| one.get("x", part).await.unwrap().unwrap();
        assert_eq!(part(Part::Whole).await.bytes, "0123456789");
        assert_eq!(part(Part::Range(2..5)).await.bytes, "234");
        assert_eq!(part(Part::Range(8..99)).await.bytes, "89");
        assert_eq!(part(Part::Range(50..99)).await.bytes, "");
        assert_eq!(part(Part::Last(3)).await.bytes, "789");
        assert_eq!(part(Part::Last(99)).await.bytes, "0123456789");
        assert_eq!(part(Part::Range(0..0)).await.size, 10);
        assert_eq!(part(Part::Range(0..0)).await.version, part(Part::Whole).await.version);
    });
}

#[test]
fn lists_are_ordered_paged_and_one_level_deep() {
    on_each(|[one, two]| async move {
        for name in ["b", "a/2", "a/1", "a/deep/er", "a.x", "c/1"] {
            one.create(name, "123".into(), Relaxed).await.unwrap();
        }
        let names = async |folder: &str, after: Option<&str>, limit| {
            let listed = two.list(folder, after, limit).await.unwrap();
            listed.into_iter().map(|Listed { name, size, .. }| (name, size)).collect::<Vec<_>>()
        };
        let folder = |name: &str| (name.to_owned(), None);
        let object = |name: &str| (name.to_owned(), Some(3));
        assert_eq!(names("", None, 9).await, [folder("a"), object("a.x"), object("b"), folder("c")]);
        assert_eq!(names("", Some("a"), 2).await, [object("a.x"), object("b")]);
        assert_eq!(names("a", None, 9).await, [object("1"), object("2"), folder("deep")]);
        assert_eq!(names("nowhere", None, 9).await, []);
        assert!(one.delete("c/1", None, Relaxed).await.unwrap());
        assert_eq!(names("c", None, 9).await, []);
    });
}

#[test]
fn only_an_unchanged_object_is_replaced_or_deleted() {
    on_each(|[one, two]| async move {
        let version = async |objects: &Arc<dyn Objects>| -> Version {
            objects.get("f/x", Part::Range(0..0)).await.unwrap().unwrap().version
        };
        assert!(!one.replace("f/x", "new".into(), &Version("none".into()), Durable).await.unwrap());
        one.create("f/x", "same".into(), Durable).await.unwrap();
        let first = version(&two).await;
        assert!(one.replace("f/x", "same".into(), &first, Durable).await.unwrap());
        // Of a remote place equal bytes may have equal versions.
        if one.is_remote() {
            let first = version(&two).await;
            assert!(one.replace("f/x", "other".into(), &first, Durable).await.unwrap());
        }
        assert!(!two.replace("f/x", "late".into(), &first, Relaxed).await.unwrap(), "equal bytes, another version");
        assert!(!two.delete("f/x", Some(&first), Durable).await.unwrap());
        let second = version(&two).await;
        assert!(two.delete("f/x", Some(&second), Durable).await.unwrap());
        assert!(!two.delete("f/x", Some(&second), Durable).await.unwrap());
        assert!(one.url().starts_with("s3:") || !two.delete("f/x", None, Durable).await.unwrap());
        assert!(one.create("f/x", "same".into(), Durable).await.unwrap());
        assert!(!two.delete("f/x", Some(&second), Durable).await.unwrap(), "it was created anew");
        assert_eq!(one.get("f/x", Part::Whole).await.unwrap().unwrap().bytes, "same");
    });
}

/// A counter that many raise loses nothing.
#[test]
fn racing_replacements_have_one_winner() {
    on_each(|[one, two]| async move {
        one.create("n", "0".into(), Relaxed).await.unwrap();
        let racers: Vec<_> = (0..8)
            .map(|n| {
                let objects = Arc::clone(if n % 2 == 0 { &one } else { &two });
                tokio::spawn(async move {
                    for _ in 0..25 {
                        loop {
                            let old = objects.get("n", Part::Whole).await.unwrap().unwrap();
                            let count: u32 = std::str::from_utf8(&old.bytes).unwrap().parse().unwrap();
                            let new = Bytes::from((count + 1).to_string());
                            if objects.replace("n", new, &old.version, Relaxed).await.unwrap() {
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        for racer in racers {
            racer.await.unwrap();
        }
        assert_eq!(one.get("n", Part::Whole).await.unwrap().unwrap().bytes, "200");
    });
}

/// Promise 22: no name leads out of the place.
#[test]
fn names_that_no_object_has_are_refused() {
    on_each(|[one, _]| async move {
        let long = "x".repeat(201);
        for name in
            ["", "/", "a/", "/a", "a//b", "..", "a/../b", ".lock", "a/.b", "A", "a b", "a\0", "é", "a\\b", &long]
        {
            let refused = one.create(name, Bytes::new(), Relaxed).await;
            assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{name:?}: {refused:?}");
        }
    });
}
