//! Staged packs: `blobs/N.pack`, a line of JSON with the ids of its blobs and then the pack as it is.
//! `blobs/N.pin` beside it says that no commit relies on it yet.
//!
//! A pin is removed, durably, before the commit that needs the pack can be seen. So a pin that is found
//! while nobody has the store open belongs to a commit that never came to be.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::BlobId;
use serde::{Deserialize, Serialize};

use super::{FileStore, disk};
use crate::checked::{self, FORMAT};
use crate::state::IdMap;
use crate::{Blobs, Era, PackId, StoreError};

#[derive(Serialize, Deserialize)]
pub(crate) struct Header {
    format: u32,
    pub(crate) bytes: u64,
    content: String,
    pub(crate) ids: Vec<BlobId>,
}

/// Which blob is in which pack, as far as this handle has read.
#[derive(Debug, Default)]
pub(crate) struct Places {
    packs: BTreeSet<u64>,
    blobs: IdMap<PackId>,
}

fn what(number: u64) -> String {
    format!("staged pack {number}")
}

impl FileStore {
    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    pub(crate) fn pack_path(&self, number: u64) -> PathBuf {
        self.blobs().join(format!("{number}.pack"))
    }

    pub(crate) fn pin(&self, number: u64) -> PathBuf {
        self.blobs().join(format!("{number}.pin"))
    }

    /// The numbers of all packs.
    pub(crate) fn pack_numbers(&self, suffix: &str) -> Result<BTreeSet<u64>, StoreError> {
        let names = disk::names(&self.blobs())?.unwrap_or_default();
        let number = |name: &String| {
            let digits = name.strip_suffix(suffix)?;
            digits.parse().ok().filter(|number: &u64| number.to_string() == digits)
        };
        Ok(names.iter().filter_map(number).collect())
    }

    pub(crate) fn header(&self, number: u64) -> Result<Option<(Header, BufReader<std::fs::File>)>, StoreError> {
        let path = self.pack_path(number);
        let Some(file) = disk::open(&path)? else { return Ok(None) };
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).map_err(|error| StoreError::from_io(&error, &path))?;
        Ok(Some((checked::open(&line, || what(number))?, reader)))
    }

    /// Removes what nobody can commit any more. Only while nobody else has the store open.
    pub(crate) fn remove_pinned(&self) -> Result<usize, StoreError> {
        let pinned = self.pack_numbers(".pin")?;
        for number in &pinned {
            disk::remove(&self.pack_path(*number))?;
            disk::remove(&self.pin(*number))?;
        }
        Ok(pinned.len())
    }
}

#[async_trait]
impl Blobs for FileStore {
    async fn stage(&self, pack: Bytes, ids: &[BlobId]) -> Result<PackId, StoreError> {
        self.writable()?;
        let content = blake3::hash(&pack).to_hex().to_string();
        let header = Header { format: FORMAT, bytes: pack.len() as u64, content, ids: ids.to_vec() };
        let line = checked::seal(&header)?;
        // Synced before it has a name: whoever looks for a blob reads all packs, and must find none that a power cut
        // has torn. Its name becomes durable with the commit that relies on it.
        let temporary = self.disk.temporary(&self.scratch(), "pack", &[&line, &pack])?;
        self.disk.sync(temporary.file(), &temporary.path)?;
        let used = [self.pack_numbers(".pack")?, self.pack_numbers(".gone")?];
        let mut number = used.iter().filter_map(|numbers| numbers.last()).max().map_or(1, |last| last + 1);
        while !temporary.link(&self.pack_path(number))? {
            number += 1;
        }
        let pin = self.pin(number);
        let pinned = disk::private().write(true).create(true).truncate(false).open(&pin);
        pinned.map_err(|error| StoreError::from_io(&error, &pin))?;
        Ok(PackId(number))
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        self.open_for_reading()?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.pack_numbers(".pack")?;
        let mut places = self.places();
        if places.packs.iter().any(|number| !now.contains(number)) {
            *places = Places::default();
        }
        for number in now {
            if !places.packs.contains(&number)
                && let Some((header, _)) = self.header(number)?
            {
                places.packs.insert(number);
                places.blobs.extend(header.ids.into_iter().map(|id| (id, PackId(number))));
            }
        }
        Ok(ids.iter().map(|id| places.blobs.get(id).copied()).collect())
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.open_for_reading()?;
        let Some((header, mut reader)) = self.header(pack.0)? else {
            return Err(StoreError::NotFound { what: what(pack.0) });
        };
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|error| StoreError::from_io(&error, &self.pack_path(pack.0)))?;
        if bytes.len() as u64 != header.bytes || blake3::hash(&bytes).to_hex().as_str() != header.content {
            return Err(StoreError::corrupt(what(pack.0), "its content doesn't fit its checksum"));
        }
        Ok(bytes.into())
    }

    async fn era(&self) -> Result<Era, StoreError> {
        self.open_for_reading()?;
        self.current_era()
    }
}
