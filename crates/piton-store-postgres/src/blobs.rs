//! Packs that are stored ahead of the commit that needs them.
//!
//! Staging, pinning and committing write to the pack's row, and so does a sweep that deletes it: of two beside each other the
//! second one sees what the first one did.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Blobs, PackId, Pin, StoreError};
use piton_types::BlobId;

use crate::PostgresStore;
use crate::log::bytes;
use crate::params::{Params, get, id32};
use crate::schema::{MAX_ROW, NOW};

/// How many ids are looked for by one statement.
const AT_ONCE: usize = 10_000;

#[async_trait]
impl Blobs for PostgresStore {
    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError> {
        let size = (pack.len() + 2 * size_of_val(ids)) as u64;
        if size > MAX_ROW {
            return Err(StoreError::TooLarge { what: "a pack".to_owned(), size, limit: MAX_ROW });
        }
        // A pack that is there isn't sent once more.
        if self.pin_those(&[id], pin).await?.len() == 1 {
            return Ok(());
        }
        let mut ids: Vec<[u8; 32]> = ids.iter().map(|id| *id.as_bytes()).collect();
        ids.sort_unstable();
        ids.dedup();
        if let Some(outside) = self.outside.as_ref().filter(|outside| pack.len() > outside.larger_than) {
            return self.stage_outside(outside, id, pack, &ids, pin).await;
        }
        let sql = format!(
            "WITH staged AS (INSERT INTO @pack(id, ids, bytes) VALUES ($1, $2, $3)
                             ON CONFLICT (id) DO UPDATE SET condemned = NULL RETURNING no),
             listed AS (INSERT INTO @blob(id, pack) SELECT new.id, staged.no FROM staged, unnest($4) AS new(id)
                        ON CONFLICT DO NOTHING)
             INSERT INTO @pin(pack, owner, until) SELECT no, $5, {NOW} + $6 FROM staged
             ON CONFLICT (pack, owner) DO UPDATE SET until = EXCLUDED.until"
        );
        let params = Params::default()
            .with(&id.as_bytes()[..])
            .with(ids.as_flattened())
            .with(&pack[..])
            .with(ids.iter().map(|id| &id[..]).collect::<Vec<_>>())
            .with(pin.owner.0.cast_signed())
            .with(life(pin));
        self.core.again(&sql, &params).await.map(drop)
    }

    async fn pin(&self, packs: &[PackId], pin: Pin) -> Result<(), StoreError> {
        let pinned = self.pin_those(packs, pin).await?;
        match packs.iter().find(|pack| !pinned.contains(pack)) {
            Some(pack) => Err(StoreError::PackGone { pack: *pack }),
            None => Ok(()),
        }
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        let sql = "SELECT b.id, p.id FROM @blob b JOIN @pack p ON p.no = b.pack WHERE b.id = ANY($1)
                   ORDER BY p.condemned IS NOT NULL, p.no";
        let mut found = HashMap::new();
        for some in ids.chunks(AT_ONCE) {
            let params = Params::default().with(some.iter().map(|id| &id.as_bytes()[..]).collect::<Vec<_>>());
            for row in &self.core.again(sql, &params).await? {
                found.entry(id32(row, 0)?).or_insert(PackId::new(id32(row, 1)?));
            }
        }
        Ok(ids.iter().map(|id| found.get(id.as_bytes()).copied()).collect())
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        let params = Params::default().with(&pack.as_bytes()[..]);
        let rows = self.core.again("SELECT bytes, object FROM @pack WHERE id = $1", &params).await?;
        let row = rows.first().ok_or_else(|| StoreError::no_pack(pack))?;
        match get::<Option<&str>>(row, 1)? {
            Some(object) => self.read_outside(object, None).await,
            None => bytes(row, 0),
        }
    }

    async fn pack_part(&self, pack: PackId, from: u64, length: usize) -> Result<Option<Bytes>, StoreError> {
        let most = i32::MAX - 1;
        let begin = i32::try_from(from).unwrap_or(most).min(most) + 1;
        let count = i32::try_from(length).unwrap_or(i32::MAX).min(i32::MAX - begin);
        let params = Params::default().with(&pack.as_bytes()[..]).with(begin).with(count);
        let sql = "SELECT substring(bytes FROM $2 FOR $3), object FROM @pack WHERE id = $1";
        let rows = self.core.again(sql, &params).await?;
        let row = rows.first().ok_or_else(|| StoreError::no_pack(pack))?;
        let part = match get::<Option<&str>>(row, 1)? {
            Some(object) => self.read_outside(object, Some((from, length))).await?,
            None => bytes(row, 0)?,
        };
        Ok(Some(part))
    }
}

impl PostgresStore {
    /// Pins those of the packs that are there, and takes them off the condemned list.
    pub(crate) async fn pin_those(&self, packs: &[PackId], pin: Pin) -> Result<Vec<PackId>, StoreError> {
        let sql = format!(
            "WITH kept AS (UPDATE @pack SET condemned = NULL WHERE id = ANY($1) RETURNING id, no),
             pinned AS (INSERT INTO @pin(pack, owner, until) SELECT no, $2, {NOW} + $3 FROM kept
                        ON CONFLICT (pack, owner) DO UPDATE SET until = EXCLUDED.until)
             SELECT id FROM kept"
        );
        let mut pinned = Vec::new();
        for some in packs.chunks(AT_ONCE) {
            let params = Params::default().with(names(some)).with(pin.owner.0.cast_signed()).with(life(pin));
            for row in &self.core.again(&sql, &params).await? {
                pinned.push(PackId::new(id32(row, 0)?));
            }
        }
        Ok(pinned)
    }
}

/// The names of packs, as a parameter.
pub(crate) fn names(packs: &[PackId]) -> Vec<&[u8]> {
    packs.iter().map(|pack| &pack.as_bytes()[..]).collect()
}

/// How long a pin lasts, in milliseconds.
pub(crate) fn life(pin: Pin) -> i64 {
    i64::try_from(pin.life.as_millis()).unwrap_or(i64::MAX / 4)
}
