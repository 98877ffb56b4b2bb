//! Packs that are stored ahead of the commit that needs them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Blobs, Era, PackId, StoreError};
use piton_types::BlobId;
use rusqlite::blob::Blob;
use rusqlite::{Connection, MAIN_DB, OptionalExtension as _, params};

use crate::log::bytes;
use crate::schema::{MAX_ROW, pack_state};
use crate::writer::Failure;
use crate::{SqliteStore, upkeep};

#[async_trait]
impl Blobs for SqliteStore {
    async fn stage(&self, pack: Bytes, ids: &[BlobId]) -> Result<PackId, StoreError> {
        let size = (pack.len() + size_of_val(ids)) as u64;
        if size > MAX_ROW {
            return Err(StoreError::TooLarge { what: "a pack".to_owned(), size, limit: MAX_ROW });
        }
        let mut ids: Vec<[u8; 32]> = ids.iter().map(|id| *id.as_bytes()).collect();
        ids.sort_unstable();
        ids.dedup();
        let stage = move |conn: &Connection| {
            conn.prepare_cached("INSERT INTO pack(ids, bytes) VALUES (?1, ?2)")?
                .execute(params![ids.as_flattened(), &pack[..]])?;
            let number = conn.last_insert_rowid();
            conn.prepare_cached("INSERT INTO pack_state(no, state) VALUES (?1, ?2)")?
                .execute([number, pack_state::PINNED])?;
            list(conn, number, ids.as_flattened())?;
            Ok(PackId(number.cast_unsigned()))
        };
        self.core.write(stage).await
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        self.core.read(|conn| {
            // One transaction: each takes and gives back a lock, which takes longer than to find an id.
            let _together = conn.unchecked_transaction()?;
            // Two ids may be made to begin alike, so the pack's own list decides.
            let mut lists = HashMap::new();
            let mut candidates = conn.prepare_cached("SELECT pack FROM blob WHERE prefix = ?1 ORDER BY pack DESC")?;
            let mut list = conn.prepare_cached("SELECT ids FROM pack WHERE no = ?1")?;
            let mut places = Vec::with_capacity(ids.len());
            for id in ids {
                let mut place = None;
                let mut rows = candidates.query([prefix(id.as_bytes())])?;
                while let Some(row) = rows.next()? {
                    let number: i64 = row.get(0)?;
                    let listed = match lists.entry(number) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(unknown) => {
                            unknown.insert(list.query_row([number], |row| bytes(row, 0)).optional()?)
                        }
                    };
                    if listed.as_ref().is_some_and(|listed| lists_id(listed, id)) {
                        place = Some(PackId(number.cast_unsigned()));
                        break;
                    }
                }
                places.push(place);
            }
            Ok(places)
        })
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.core.read(|conn| {
            let blob = open(conn, pack)?;
            Ok(read_part(&blob, 0, blob.len())?)
        })
    }

    async fn pack_part(&self, pack: PackId, from: u64, length: usize) -> Result<Option<Bytes>, StoreError> {
        self.core.read(|conn| {
            let blob = open(conn, pack)?;
            let from = usize::try_from(from).unwrap_or(usize::MAX).min(blob.len());
            Ok(Some(read_part(&blob, from, length.min(blob.len() - from))?))
        })
    }

    async fn era(&self) -> Result<Era, StoreError> {
        self.core.read(|conn| Ok(upkeep::era(conn)?))
    }
}

/// The bytes of a pack, to be read straight into their place: in a row, SQLite would gather all of them first.
fn open(conn: &Connection, pack: PackId) -> Result<Blob<'_>, Failure> {
    match conn.blob_open(MAIN_DB, "pack", "bytes", pack.0.cast_signed(), true) {
        Err(_) if !is_there(conn, pack)? => Err(upkeep::no_pack(pack).into()),
        opened => Ok(opened?),
    }
}

/// Reads a part that is there, into memory that isn't zeroed before: that would take as long as the copy.
fn read_part(blob: &Blob<'_>, from: usize, length: usize) -> rusqlite::Result<Bytes> {
    let mut bytes = Vec::with_capacity(length);
    blob.raw_read_at_exact(&mut bytes.spare_capacity_mut()[..length], from)?;
    #[expect(unsafe_code, reason = "nothing else tells a vector that it was filled")]
    // SAFETY: the read has filled exactly so many bytes, or has failed above.
    unsafe {
        bytes.set_len(length);
    }
    Ok(bytes.into())
}

fn is_there(conn: &Connection, pack: PackId) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM pack WHERE no = ?1")?.exists([pack.0.cast_signed()])
}

fn prefix(id: &[u8]) -> i64 {
    i64::from_be_bytes(id[..8].try_into().expect("an id has 32 bytes"))
}

/// Lets the blobs of a pack be found.
pub(crate) fn list(conn: &Connection, number: i64, ids: &[u8]) -> rusqlite::Result<()> {
    let mut blob = conn.prepare_cached("INSERT OR IGNORE INTO blob(prefix, pack) VALUES (?1, ?2)")?;
    for id in ids.as_chunks::<32>().0 {
        blob.execute([prefix(id), number])?;
    }
    Ok(())
}

/// Whether a pack's sorted list has this id.
fn lists_id(list: &[u8], id: &BlobId) -> bool {
    let (ids, _) = list.as_chunks::<32>();
    ids.binary_search(id.as_bytes()).is_ok()
}

/// Removes packs that were staged and never committed. Only to be called while nobody else has the
/// store open: then nobody is left who could commit them.
pub(crate) fn remove_pinned(conn: &Connection) -> rusqlite::Result<usize> {
    let mut removed = 0;
    while let Some((number, ids)) = conn
        .query_row(
            "SELECT no, ids FROM pack_state JOIN pack USING (no) WHERE state = 0 ORDER BY no LIMIT 1",
            (),
            |row| Ok((row.get::<_, i64>(0)?, bytes(row, 1)?)),
        )
        .optional()?
    {
        let transaction = conn.unchecked_transaction()?;
        delete(conn, number, &ids)?;
        transaction.commit()?;
        removed += 1;
    }
    Ok(removed)
}

/// Deletes a pack with these ids.
pub(crate) fn delete(conn: &Connection, number: i64, ids: &[u8]) -> rusqlite::Result<()> {
    let mut blob = conn.prepare_cached("DELETE FROM blob WHERE prefix = ?1 AND pack = ?2")?;
    for id in ids.as_chunks::<32>().0 {
        blob.execute([prefix(id), number])?;
    }
    conn.prepare_cached("DELETE FROM pack_state WHERE no = ?1")?.execute([number])?;
    conn.prepare_cached("DELETE FROM pack WHERE no = ?1")?.execute([number]).map(drop)
}
