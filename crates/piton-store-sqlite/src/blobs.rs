//! Packs that are stored ahead of the commit that needs them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Blobs, Era, PackId, StoreError};
use piton_types::{BlobId, Durability};
use rusqlite::blob::Blob;
use rusqlite::{Connection, MAIN_DB, OptionalExtension as _, params};

use crate::inspect::is_damage;
use crate::log::bytes;
use crate::schema::{BLOB_TABLE, MAX_ROW, pack_state};
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
        let ids = Bytes::from(ids.into_flattened());
        let stage = move |conn: &Connection| {
            conn.prepare_cached("INSERT INTO pack(ids, bytes) VALUES (?1, ?2)")?
                .execute(params![&ids[..], &pack[..]])?;
            let number = conn.last_insert_rowid();
            conn.prepare_cached("INSERT INTO pack_state(no, state) VALUES (?1, ?2)")?
                .execute([number, pack_state::PINNED])?;
            list(conn, number, &ids)?;
            Ok(PackId(number.cast_unsigned()))
        };
        match self.core.write(Durability::Relaxed, stage.clone()).await {
            Err(StoreError::Corrupt { detail, .. }) => {
                tracing::warn!(detail, store = %self.core.files.database.display(), "blobs are listed anew");
                self.core.write(Durability::Relaxed, |conn| Ok(list_anew(conn)?)).await?;
                self.core.write(Durability::Relaxed, stage).await
            }
            staged => staged,
        }
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        self.core.read(|conn| match locate(conn, ids) {
            Err(error) if is_damage(&error) => Ok(locate_in_lists(conn, ids)?),
            found => Ok(found?),
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

/// The packs that hold blobs, by the table of blobs.
fn locate(conn: &Connection, ids: &[BlobId]) -> rusqlite::Result<Vec<Option<PackId>>> {
    // One transaction for all: each would take and give back a lock.
    let _together = conn.unchecked_transaction()?;
    let mut candidates = conn.prepare_cached("SELECT pack FROM blob WHERE prefix = ?1 ORDER BY pack DESC")?;
    // Two ids may be made to begin alike, so the pack's own list decides. The lists that were read so far:
    let mut lists = HashMap::new();
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let mut place = None;
        let mut rows = candidates.query([prefix(id.as_bytes())])?;
        while place.is_none()
            && let Some(row) = rows.next()?
        {
            let number = row.get(0)?;
            let list = match lists.entry(number) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(ids_of(conn, number)?),
            };
            place = is_listed(list, id).then_some(PackId(number.cast_unsigned()));
        }
        found.push(place);
    }
    Ok(found)
}

/// The same where the table of blobs is damaged: by the lists of all packs, from which it was made.
fn locate_in_lists(conn: &Connection, ids: &[BlobId]) -> rusqlite::Result<Vec<Option<PackId>>> {
    let mut found = vec![None; ids.len()];
    let mut statement = conn.prepare_cached("SELECT no, ids FROM pack ORDER BY no")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let (number, list) = (row.get::<_, i64>(0)?, row.get_ref(1)?.as_blob()?);
        for (place, id) in found.iter_mut().zip(ids) {
            if is_listed(list, id) {
                *place = Some(PackId(number.cast_unsigned()));
            }
        }
    }
    Ok(found)
}

/// Whether a pack's sorted list has this id.
fn is_listed(list: &[u8], id: &BlobId) -> bool {
    list.as_chunks::<32>().0.binary_search(id.as_bytes()).is_ok()
}

/// The bytes of a pack, to be read straight into their place: in a row, SQLite would gather all of them first.
fn open(conn: &Connection, pack: PackId) -> Result<Blob<'_>, Failure> {
    match conn.blob_open(MAIN_DB, "pack", "bytes", pack.0.cast_signed(), true) {
        Err(_) if !is_there(conn, pack)? => Err(upkeep::no_pack(pack).into()),
        opened => Ok(opened?),
    }
}

/// Reads a part that is there.
fn read_part(blob: &Blob<'_>, from: usize, length: usize) -> rusqlite::Result<Bytes> {
    let mut bytes = vec![0; length];
    blob.read_at_exact(&mut bytes, from)?;
    Ok(bytes.into())
}

fn is_there(conn: &Connection, pack: PackId) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM pack WHERE no = ?1")?.exists([pack.0.cast_signed()])
}

fn prefix(id: &[u8]) -> i64 {
    i64::from_be_bytes(id[..8].try_into().expect("an id has 32 bytes"))
}

/// Adds the blobs of a pack, sorted, to the table that finds them.
pub(crate) fn list(conn: &Connection, number: i64, ids: &[u8]) -> rusqlite::Result<()> {
    let mut blob = conn.prepare_cached("INSERT OR IGNORE INTO blob(prefix, pack) VALUES (?1, ?2)")?;
    for id in ids.as_chunks::<32>().0 {
        blob.execute([prefix(id), number])?;
    }
    Ok(())
}

/// Makes the table of blobs anew from the lists of all packs, because a page of it is damaged. SQLite can't delete such a
/// table, so it gets another name; a repair leaves it behind.
fn list_anew(conn: &Connection) -> rusqlite::Result<()> {
    let aside: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'damaged_blob_%'", (), |row| row.get(0))?;
    conn.execute_batch(&format!("ALTER TABLE blob RENAME TO damaged_blob_{aside}; {BLOB_TABLE}"))?;
    let mut statement = conn.prepare("SELECT no, ids FROM pack")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        list(conn, row.get(0)?, row.get_ref(1)?.as_blob()?)?;
    }
    Ok(())
}

/// The sorted ids of a pack's blobs; empty if there is no such pack.
fn ids_of(conn: &Connection, number: i64) -> rusqlite::Result<Bytes> {
    let mut statement = conn.prepare_cached("SELECT ids FROM pack WHERE no = ?1")?;
    Ok(statement.query_row([number], |row| bytes(row, 0)).optional()?.unwrap_or_default())
}

/// Removes packs that were staged and never committed. The caller has the store alone, so that no
/// process is left that could commit them.
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
