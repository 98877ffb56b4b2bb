//! Packs that are stored ahead of the commit that needs them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Blobs, Owner, PackId, Pin, StoreError};
use piton_types::{BlobId, Durability};
use rusqlite::blob::Blob;
use rusqlite::{Connection, MAIN_DB, OptionalExtension as _, params};

use crate::SqliteStore;
use crate::inspect::is_damage;
use crate::log::bytes;
use crate::schema::{BLOB_TABLE, MAX_ROW};
use crate::writer::Failure;

#[async_trait]
impl Blobs for SqliteStore {
    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError> {
        let size = (pack.len() + size_of_val(ids)) as u64;
        if size > MAX_ROW {
            return Err(StoreError::TooLarge { what: "a pack".to_owned(), size, limit: MAX_ROW });
        }
        let mut ids: Vec<[u8; 32]> = ids.iter().map(|id| *id.as_bytes()).collect();
        ids.sort_unstable();
        ids.dedup();
        let ids = Bytes::from(ids.into_flattened());
        let stage = move |conn: &Connection| {
            let number =
                match number_of(conn, id)? {
                    Some(number) => number,
                    None => {
                        conn.prepare_cached("INSERT INTO pack(id, ids, bytes) VALUES (?1, ?2, ?3)")?
                            .execute(params![id.as_bytes(), &ids[..], &pack[..]])?;
                        let number = conn.last_insert_rowid();
                        list(conn, number, &ids)?;
                        number
                    }
                };
            Ok(pin_one(conn, number, pin)?)
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

    async fn pin(&self, packs: &[PackId], pin: Pin) -> Result<(), StoreError> {
        let packs = packs.to_vec();
        let pin =
            move |conn: &Connection| packs.iter().try_for_each(|pack| Ok(pin_one(conn, there(conn, *pack)?, pin)?));
        self.core.write(Durability::Relaxed, pin).await
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
}

/// The number of a pack, if it is there.
fn number_of(conn: &Connection, pack: PackId) -> rusqlite::Result<Option<i64>> {
    let mut statement = conn.prepare_cached("SELECT no FROM pack WHERE id = ?1")?;
    statement.query_row([pack.as_bytes()], |row| row.get(0)).optional()
}

/// The number of a pack, for a writer that relies on it.
fn there(conn: &Connection, pack: PackId) -> Result<i64, Failure> {
    Ok(number_of(conn, pack)?.ok_or(StoreError::PackGone { pack })?)
}

/// Pins a pack, and takes it off the condemned list.
fn pin_one(conn: &Connection, number: i64, pin: Pin) -> rusqlite::Result<()> {
    let life = i64::try_from(pin.life.as_millis()).unwrap_or(i64::MAX / 2);
    conn.prepare_cached(&format!("INSERT OR REPLACE INTO pin(pack, owner, until) VALUES (?1, ?2, {NOW} + ?3)"))?
        .execute([number, pin.owner.0.cast_signed(), life])?;
    conn.prepare_cached("DELETE FROM condemned WHERE pack = ?1")?.execute([number]).map(drop)
}

/// The time in milliseconds, by SQLite.
pub(crate) const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// A commit relies on packs: they aren't condemned, and its writer's pins end.
pub(crate) fn take(conn: &Connection, packs: &[PackId], owner: Owner) -> Result<(), Failure> {
    for pack in packs {
        let number = there(conn, *pack)?;
        conn.prepare_cached("DELETE FROM condemned WHERE pack = ?1")?.execute([number])?;
        conn.prepare_cached("DELETE FROM pin WHERE pack = ?1 AND owner = ?2")?
            .execute([number, owner.0.cast_signed()])?;
    }
    Ok(())
}

/// The packs that hold blobs, by the table of blobs.
fn locate(conn: &Connection, ids: &[BlobId]) -> rusqlite::Result<Vec<Option<PackId>>> {
    // One transaction for all: each would take and give back a lock.
    let _together = conn.unchecked_transaction()?;
    let mut candidates = conn.prepare_cached(
        "SELECT pack FROM blob LEFT JOIN condemned USING (pack) WHERE prefix = ?1 ORDER BY since IS NOT NULL, pack",
    )?;
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
            place = list.as_ref().filter(|(_, list)| is_listed(list, id)).map(|(pack, _)| *pack);
        }
        found.push(place);
    }
    Ok(found)
}

/// The same where the table of blobs is damaged: by the lists of all packs, from which it was made.
fn locate_in_lists(conn: &Connection, ids: &[BlobId]) -> rusqlite::Result<Vec<Option<PackId>>> {
    let mut found = vec![None; ids.len()];
    let mut statement = conn.prepare_cached("SELECT id, ids FROM pack ORDER BY no")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let (pack, list) = (PackId::new(row.get(0)?), row.get_ref(1)?.as_blob()?);
        for (place, id) in found.iter_mut().zip(ids) {
            if is_listed(list, id) {
                *place = Some(pack);
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
    let missing = || StoreError::no_pack(pack);
    let number = number_of(conn, pack)?.ok_or_else(missing)?;
    match conn.blob_open(MAIN_DB, "pack", "bytes", number, true) {
        Err(_) if number_of(conn, pack)?.is_none() => Err(missing().into()),
        opened => Ok(opened?),
    }
}

/// Reads a part that is there.
fn read_part(blob: &Blob<'_>, from: usize, length: usize) -> rusqlite::Result<Bytes> {
    let mut bytes = vec![0; length];
    blob.read_at_exact(&mut bytes, from)?;
    Ok(bytes.into())
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

/// The name of a pack and the sorted ids of its blobs, if there is such a pack.
fn ids_of(conn: &Connection, number: i64) -> rusqlite::Result<Option<(PackId, Bytes)>> {
    let mut statement = conn.prepare_cached("SELECT id, ids FROM pack WHERE no = ?1")?;
    statement.query_row([number], |row| Ok((PackId::new(row.get(0)?), bytes(row, 1)?))).optional()
}

/// Deletes a pack with these ids.
pub(crate) fn delete(conn: &Connection, number: i64, ids: &[u8]) -> rusqlite::Result<()> {
    let mut blob = conn.prepare_cached("DELETE FROM blob WHERE prefix = ?1 AND pack = ?2")?;
    for id in ids.as_chunks::<32>().0 {
        blob.execute([prefix(id), number])?;
    }
    for sql in ["DELETE FROM pin WHERE pack = ?1", "DELETE FROM condemned WHERE pack = ?1"] {
        conn.prepare_cached(sql)?.execute([number])?;
    }
    conn.prepare_cached("DELETE FROM pack WHERE no = ?1")?.execute([number]).map(drop)
}
