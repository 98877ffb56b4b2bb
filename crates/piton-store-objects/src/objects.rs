//! What a store asks of a place that keeps objects.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{StoreError, checked};
use piton_types::Durability;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Tells one content of an object from the next. What it consists of is the place's own affair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version(pub String);

/// An object, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The bytes that were asked for.
    pub bytes: Bytes,
    /// The version of the whole.
    pub version: Version,
    /// The size of the whole.
    pub size: u64,
}

/// How much of an object to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// These bytes, as far as they are there.
    Range(Range<u64>),
    /// At most so many bytes at its end.
    Last(u64),
}

impl Part {
    /// Where the part lies in an object of this size.
    pub fn within(&self, size: u64) -> Range<u64> {
        match self {
            Self::Whole => 0..size,
            Self::Range(range) => {
                let end = range.end.min(size);
                range.start.min(end)..end
            }
            Self::Last(count) => size.saturating_sub(*count)..size,
        }
    }
}

/// What a list tells of one name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name, without the folder.
    pub name: String,
    /// The size of the object; `None` if this is a folder.
    pub size: Option<u64>,
    /// Another one whenever the content is another one, if lists of this place tell; a remote place's do.
    pub version: Option<Version>,
}

/// A place that keeps objects: byte strings with names.
///
/// A name consists of parts with slashes in between. A part has small ASCII letters, digits and `.`, `_`, `-`, `~`, `=`,
/// doesn't begin with a dot, and is at most 200 bytes long. The names that begin alike up to a slash make a folder;
/// a folder is there as long as an object is in it, and may be there longer.
///
/// A version may come again with the same content, but with no other.
///
/// Every call sees what every call that returned before it did, in whichever process, and so do lists. Every change of
/// one object is whole: a reader sees the content of before or of after. Nothing is promised of several objects.
/// After an error other than those named here, and if a future is dropped, a change has taken place or not.
#[async_trait]
pub trait Objects: Send + Sync + std::fmt::Debug {
    /// Creates the object if there is none with this name; `false` if there is. Of several callers that race for a
    /// name, exactly one gets `true`.
    ///
    /// With [`Durability::Durable`] it survives a power cut when this returns. A relaxed one may be lost by a power
    /// cut, or be there with any content.
    async fn create(&self, name: &str, content: Bytes, durability: Durability) -> Result<bool, StoreError>;

    /// Reads the object, or a part of it; `None` if there is none.
    async fn get(&self, name: &str, part: Part) -> Result<Option<Object>, StoreError>;

    /// Whether there is such an object.
    async fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.get(name, Part::Range(0..0)).await?.is_some())
    }

    /// The objects and folders in `folder` behind the name `after`, in the order of their bytes, at most so many.
    /// `""` is the folder of everything; a folder that isn't there is empty. What is created or deleted while the list
    /// is made is in it or not.
    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>, StoreError>;

    /// Replaces the object if it still has this version; `false` if it has another one or is gone. Durability as with
    /// [`create`](Self::create).
    async fn replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
        durability: Durability,
    ) -> Result<bool, StoreError>;

    /// Deletes the object, if it has this version where one is given; `false` if it has another one or is gone. Without a
    /// version a place that isn't told by the other side whether there was one says `true`.
    async fn delete(&self, name: &str, version: Option<&Version>, durability: Durability) -> Result<bool, StoreError>;

    /// Deletes objects, in any order.
    async fn delete_all(&self, names: &[String], durability: Durability) -> Result<(), StoreError> {
        for name in names {
            self.delete(name, None, durability).await?;
        }
        Ok(())
    }

    /// The bytes of all objects.
    async fn bytes(&self) -> Result<u64, StoreError> {
        let (mut bytes, mut folders) = (0, vec![String::new()]);
        while let Some(folder) = folders.pop() {
            for listed in self.list(&folder, None, usize::MAX).await? {
                match (listed.size, folder.is_empty()) {
                    (Some(size), _) => bytes += size,
                    (None, true) => folders.push(listed.name),
                    (None, false) => folders.push(format!("{folder}/{}", listed.name)),
                }
            }
        }
        Ok(bytes)
    }

    /// Adds lines to a text that only people read. A place that can't add to an object does nothing.
    async fn tell(&self, name: &str, lines: &[u8]) -> Result<(), StoreError> {
        let _ = (name, lines);
        Ok(())
    }

    /// Whether objects outlive the process.
    fn is_persistent(&self) -> bool;

    /// Whether a call asks another machine. Then the store makes fewer of them, and writes nothing that is only for
    /// people.
    fn is_remote(&self) -> bool {
        false
    }

    /// The place as part of a store's URL.
    fn url(&self) -> String;

    /// How often this handle has waited for the disk, as far as it counts that.
    fn syncs(&self) -> u64 {
        0
    }

    /// Ends the use of this handle.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Checks a name against the rules of [`Objects`].
pub(crate) fn check_name(name: &str) -> Result<(), StoreError> {
    let fits = |part: &str| {
        let bytes = part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-~=".contains(&b));
        bytes && !part.is_empty() && part.len() <= 200 && !part.starts_with('.')
    };
    match name.split('/').all(fits) {
        true => Ok(()),
        false => {
            Err(StoreError::Invalid { what: format!("object name {name:?}"), detail: "no object has it".to_owned() })
        }
    }
}

/// The record with this name, and its version; `None` if there is none.
pub(crate) async fn read<T: DeserializeOwned>(
    objects: &dyn Objects,
    name: &str,
) -> Result<Option<(T, Version)>, StoreError> {
    let Some(object) = objects.get(name, Part::Whole).await? else { return Ok(None) };
    Ok(Some((checked::open(&object.bytes, || name.to_owned())?, object.version)))
}

/// Changes the record with this name. `next` is given what is there, and says what is to be there and what to answer;
/// it is asked again if another writer was faster. With `None` nothing is changed.
pub(crate) async fn change<T: Serialize + DeserializeOwned, R>(
    objects: &dyn Objects,
    name: &str,
    durability: Durability,
    mut next: impl FnMut(Result<Option<T>, StoreError>) -> Result<(Option<T>, R), StoreError>,
) -> Result<R, StoreError> {
    loop {
        let old = objects.get(name, Part::Whole).await?;
        let (bytes, version) = old.map(|old| (old.bytes, old.version)).unzip();
        let (new, answer) = next(bytes.map(|bytes| checked::open(&bytes, || name.to_owned())).transpose())?;
        let Some(new) = new else { return Ok(answer) };
        let bytes = checked::seal(&new)?.into();
        let is_done = match version {
            None => objects.create(name, bytes, durability).await?,
            Some(version) => objects.replace(name, bytes, &version, durability).await?,
        };
        if is_done {
            return Ok(answer);
        }
    }
}
