//! Packs that are stored ahead of the commit that needs them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Blobs, Era, PackId, StoreError};
use piton_types::BlobId;
use rusqlite::blob::Blob;
use rusqlite::{Connection, MAIN_DB, OptionalExtension as _, params};

use crate::inspect::is_damage;
use crate::log::bytes;
use crate::schema::{MAX_ROW, pack_state};
use crate::writer::{Failure, locked};
use crate::{SqliteStore, upkeep};

/// How many blobs may wait to be listed. Whoever looks for one reads the ids of all of them, once a process.
const UNLISTED: i64 = 4096;
/// And how many packs.
const UNLISTED_PACKS: i64 = 64;

/// How many ids are looked for one by one.
const FEW: usize = 256;

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
        let list = Bytes::from(ids.into_flattened());
        let listed = list.clone();
        let stage = move |conn: &Connection| {
            conn.prepare_cached("INSERT INTO pack(ids, bytes) VALUES (?1, ?2)")?
                .execute(params![&list[..], &pack[..]])?;
            let number = conn.last_insert_rowid();
            conn.prepare_cached("INSERT INTO pack_state(no, state) VALUES (?1, ?2)")?
                .execute([number, pack_state::PINNED])?;
            conn.prepare_cached("INSERT INTO unlisted(pack, blobs) VALUES (?1, ?2)")?
                .execute([number, (list.len() / 32) as i64])?;
            let (packs, blobs): (i64, i64) = conn
                .prepare_cached("SELECT count(*), sum(blobs) FROM unlisted")?
                .query_row((), |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok((number, packs > UNLISTED_PACKS || blobs > UNLISTED))
        };
        let (number, is_time) = self.core.write(stage).await?;
        locked(&self.core.unlisted).insert(number, listed);
        if is_time && let Err(error) = self.list_waiting().await {
            // They are found all the same, and the next pack brings it up again.
            tracing::warn!(%error, store = %self.core.files.database.display(), "blobs can't be listed");
        }
        Ok(PackId(number.cast_unsigned()))
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        self.core.read(|conn| {
            // One transaction: each takes and gives back a lock, which takes longer than to find an id.
            let _together = conn.unchecked_transaction()?;
            let Unlisted { packs: unlisted, damage } = self.unlisted(conn)?;
            // Two ids may be made to begin alike, so the pack's own list decides.
            let mut lists = Lists { conn, whole: (ids.len() > FEW).then(HashMap::new) };
            let mut candidates = conn.prepare_cached("SELECT pack FROM blob WHERE prefix = ?1 ORDER BY pack DESC")?;
            let mut places = Vec::with_capacity(ids.len());
            for id in ids {
                let mut place = unlisted.iter().find(|(_, list)| lists_id(list, id)).map(|(number, _)| *number);
                let mut rows = candidates.query([prefix(id.as_bytes())])?;
                while place.is_none()
                    && let Some(row) = rows.next()?
                {
                    let number = row.get(0)?;
                    place = lists.has(number, id)?.then_some(number);
                }
                // It may be in a pack whose list can't be read.
                if place.is_none()
                    && let Some(error) = damage
                {
                    return Err(error.into());
                }
                places.push(place.map(|number| PackId(number.cast_unsigned())));
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

/// Adds the blobs of packs to the table that finds them, in its own order, so that each page of it is changed once.
pub(crate) fn list<'a>(conn: &Connection, packs: impl Iterator<Item = (i64, &'a [u8])>) -> rusqlite::Result<()> {
    let mut rows: Vec<(i64, i64)> =
        packs.flat_map(|(number, ids)| ids.as_chunks::<32>().0.iter().map(move |id| (prefix(id), number))).collect();
    rows.sort_unstable();
    let mut blob = conn.prepare_cached("INSERT OR IGNORE INTO blob(prefix, pack) VALUES (?1, ?2)")?;
    for (prefix, number) in rows {
        blob.execute([prefix, number])?;
    }
    Ok(())
}

/// Whether a pack's sorted list has this id.
fn lists_id(list: &[u8], id: &BlobId) -> bool {
    let (ids, _) = list.as_chunks::<32>();
    ids.binary_search(id.as_bytes()).is_ok()
}

/// The lists of packs, to look for ids in.
struct Lists<'a> {
    conn: &'a Connection,
    /// Lists that were read as a whole; `None` if few ids are looked for, for which parts have to do.
    whole: Option<HashMap<i64, Option<Bytes>>>,
}

impl Lists<'_> {
    fn has(&mut self, number: i64, id: &BlobId) -> rusqlite::Result<bool> {
        let list = match &mut self.whole {
            Some(known) => match known.entry(number) {
                Entry::Occupied(known) => known.into_mut().as_ref(),
                Entry::Vacant(unknown) => unknown.insert(ids(self.conn, number)?).as_ref(),
            },
            None => return has_near(self.conn, number, id),
        };
        Ok(list.is_some_and(|list| lists_id(list, id)))
    }
}

/// The list of a pack, if there is one.
fn ids(conn: &Connection, number: i64) -> rusqlite::Result<Option<Bytes>> {
    conn.prepare_cached("SELECT ids FROM pack WHERE no = ?1")?.query_row([number], |row| bytes(row, 0)).optional()
}

/// As [`lists_id`], reading little of the list. Ids are hashes, so where one is in order tells where to look; a list of
/// others is read as a whole.
fn has_near(conn: &Connection, number: i64, id: &BlobId) -> rusqlite::Result<bool> {
    let whole = || Ok(ids(conn, number)?.is_some_and(|list| lists_id(&list, id)));
    let Ok(list) = conn.blob_open(MAIN_DB, "pack", "ids", number, true) else { return whole() };
    let count = list.len() / 32;
    let share = u64::from_be_bytes(id.as_bytes()[..8].try_into().expect("an id has 32 bytes"));
    let guess = ((u128::from(share) * count as u128) >> 64) as usize;
    // Eight times what hashes stray by.
    let stray = 4 * count.isqrt() + 16;
    let (from, to) = (guess.saturating_sub(stray), (guess + stray).min(count));
    let part = read_part(&list, from * 32, (to - from) * 32)?;
    let (ids, _) = part.as_chunks::<32>();
    match ids.binary_search(id.as_bytes()) {
        Ok(_) => Ok(true),
        Err(0) if from > 0 => whole(),
        Err(end) if end == ids.len() && to < count => whole(),
        Err(_) => Ok(false),
    }
}

/// Packs that aren't listed yet.
struct Unlisted {
    /// Their numbers and lists, the newest first.
    packs: Vec<(i64, Bytes)>,
    /// Why there may be more.
    damage: Option<rusqlite::Error>,
}

impl SqliteStore {
    /// The packs that aren't listed. What can't be read of them is left out: everything else is found all the same.
    fn unlisted(&self, conn: &Connection) -> rusqlite::Result<Unlisted> {
        let mut damage = None;
        let mut or_nothing = |error: rusqlite::Error| match is_damage(&error) {
            true => {
                damage = Some(error);
                Ok(())
            }
            false => Err(error),
        };
        let mut numbers: Vec<i64> = Vec::new();
        let mut statement = conn.prepare_cached("SELECT pack FROM unlisted ORDER BY pack DESC")?;
        for number in statement.query_map((), |row| row.get(0))? {
            match number {
                Ok(number) => numbers.push(number),
                Err(error) => or_nothing(error)?,
            }
        }
        let mut known = locked(&self.core.unlisted);
        known.retain(|number, _| numbers.contains(number));
        let mut packs = Vec::with_capacity(numbers.len());
        for number in numbers {
            let list = match known.get(&number) {
                Some(list) => list.clone(),
                None => match ids(conn, number) {
                    Ok(Some(list)) => known.entry(number).or_insert(list).clone(),
                    // One whose row is lost has no blobs.
                    Ok(None) => continue,
                    Err(error) => {
                        or_nothing(error)?;
                        continue;
                    }
                },
            };
            packs.push((number, list));
        }
        Ok(Unlisted { packs, damage })
    }

    /// Lists the packs that wait for it. They are read before: damage that is met while something is being written
    /// takes that back.
    async fn list_waiting(&self) -> Result<(), StoreError> {
        let packs = self.core.read(|conn| Ok(self.unlisted(conn)?.packs))?;
        let listing = move |conn: &Connection| {
            let mut listed = conn.prepare_cached("DELETE FROM unlisted WHERE pack = ?1")?;
            let mut waiting = Vec::with_capacity(packs.len());
            for (number, list) in &packs {
                if listed.execute([number])? > 0 {
                    waiting.push((*number, &list[..]));
                }
            }
            Ok(list(conn, waiting.into_iter())?)
        };
        self.core.write(listing).await
    }
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
    if conn.prepare_cached("DELETE FROM unlisted WHERE pack = ?1")?.execute([number])? == 0 {
        let mut blob = conn.prepare_cached("DELETE FROM blob WHERE prefix = ?1 AND pack = ?2")?;
        for id in ids.as_chunks::<32>().0 {
            blob.execute([prefix(id), number])?;
        }
    }
    conn.prepare_cached("DELETE FROM pack_state WHERE no = ?1")?.execute([number])?;
    conn.prepare_cached("DELETE FROM pack WHERE no = ?1")?.execute([number]).map(drop)
}
