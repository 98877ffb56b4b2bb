//! Objects in this process's memory, for tests and for runs whose owner wants steps without persistence.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::StoreError;
use piton_types::Durability;

use crate::objects::{Listed, Object, Objects, Part, Version, check_name};

/// Objects in memory. They are gone with the last handle.
#[derive(Debug, Default)]
pub struct MemoryObjects {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    objects: BTreeMap<String, (Bytes, u64)>,
    /// Counts every change, so that no version comes twice.
    changes: u64,
}

impl Kept {
    fn put(&mut self, name: &str, content: Bytes) {
        self.changes += 1;
        self.objects.insert(name.to_owned(), (content, self.changes));
    }

    fn has(&self, name: &str, version: &Version) -> bool {
        self.objects.get(name).is_some_and(|(_, number)| number.to_string() == version.0)
    }
}

impl MemoryObjects {
    /// No objects yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no code that holds this lock panics")
    }
}

#[async_trait]
impl Objects for MemoryObjects {
    async fn create(&self, name: &str, content: Bytes, _: Durability) -> Result<bool, StoreError> {
        check_name(name)?;
        let mut kept = self.kept();
        let is_free = !kept.objects.contains_key(name);
        if is_free {
            kept.put(name, content);
        }
        Ok(is_free)
    }

    async fn get(&self, name: &str, part: Part) -> Result<Option<Object>, StoreError> {
        let kept = self.kept();
        let Some((content, number)) = kept.objects.get(name) else { return Ok(None) };
        let size = content.len() as u64;
        let place = part.within(size);
        let within = |at: u64| usize::try_from(at).expect("it lies within a slice");
        let bytes = content.slice(within(place.start)..within(place.end));
        Ok(Some(Object { bytes, version: Version(number.to_string()), size }))
    }

    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let kept = self.kept();
        // A folder sorts by its name alone, its objects by the slash behind it.
        let mut listed: BTreeMap<&str, Option<(u64, u64)>> = BTreeMap::new();
        let inside = kept.objects.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix));
        for (name, (content, number)) in inside {
            let rest = &name[prefix.len()..];
            match rest.split_once('/') {
                Some((folder, _)) => listed.insert(folder, None),
                None => listed.insert(rest, Some((content.len() as u64, *number))),
            };
        }
        let behind = listed.into_iter().filter(|(name, _)| after.is_none_or(|after| *name > after));
        let listed = behind.take(limit).map(|(name, object)| Listed {
            name: name.to_owned(),
            size: object.map(|(size, _)| size),
            version: object.map(|(_, number)| Version(number.to_string())),
        });
        Ok(listed.collect())
    }

    async fn replace(&self, name: &str, content: Bytes, version: &Version, _: Durability) -> Result<bool, StoreError> {
        let mut kept = self.kept();
        let fits = kept.has(name, version);
        if fits {
            kept.put(name, content);
        }
        Ok(fits)
    }

    async fn delete(&self, name: &str, version: Option<&Version>, _: Durability) -> Result<bool, StoreError> {
        let mut kept = self.kept();
        let fits = version.is_none_or(|version| kept.has(name, version));
        Ok(fits && kept.objects.remove(name).is_some())
    }

    fn is_persistent(&self) -> bool {
        false
    }

    fn url(&self) -> String {
        "memory:".to_owned()
    }
}
