//! Packs that are too large for rows: they lie in an object store, and their row in `pack` names the object.
//!
//! No name is given twice, not even to the same pack, so what deletes an old object can't meet a new one. An object that no row of
//! `pack` names stands in `loose`, with the time after which it may be deleted: it is put there before it is written, the
//! statement that adds the pack takes it out, and the one that deletes the pack puts it there again. So a crash between the
//! database and the object store leaves an object that the next sweep deletes, and never a pack without its bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use piton_store::{Defect, Owner, PackId, PackPlace, Pin, StoreError};

use crate::PostgresStore;
use crate::blobs::life;
use crate::params::{Params, count, get};
use crate::schema::NOW;

/// What a writer has to write an object and add its pack, in milliseconds. What a dead one leaves is deleted after that.
const TO_WRITE: i64 = 60 * 60 * 1000;

/// How many objects one sweep deletes, and how many are listed at a time.
const AT_ONCE: usize = 256;

/// Where packs go that are too large for rows.
#[derive(Clone)]
pub struct OutsidePacks {
    pub(crate) place: Arc<dyn PackPlace>,
    pub(crate) larger_than: usize,
}

impl OutsidePacks {
    /// Packs of more than a mebibyte go there.
    pub fn new(place: Arc<dyn PackPlace>) -> Self {
        Self { place, larger_than: 1 << 20 }
    }

    /// The same for packs of more than so many bytes.
    #[must_use]
    pub fn larger_than(self, bytes: usize) -> Self {
        Self { larger_than: bytes, ..self }
    }

    /// Writes something there and deletes it, so that what is wrong is found before a store relies on it.
    pub(crate) async fn try_out(&self) -> Result<(), StoreError> {
        let name = format!("probe-{:016x}", Owner::new().0);
        self.place.write(&name, Bytes::from_static(b"piton")).await?;
        self.place.read(&name, None).await?;
        self.place.delete(&name).await
    }
}

impl std::fmt::Debug for OutsidePacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OutsidePacks").field(&self.place.url()).finish()
    }
}

impl PostgresStore {
    /// The place, which a store has if any of its packs is there.
    fn outside(&self) -> Result<&OutsidePacks, StoreError> {
        self.outside.as_ref().ok_or_else(|| StoreError::Invalid {
            what: format!("a large pack of {}", self.core.shown),
            detail: "it isn't in the database, and `blobs=` in the URL doesn't say where".to_owned(),
        })
    }

    /// Writes the object, then adds the pack.
    pub(crate) async fn stage_outside(
        &self,
        outside: &OutsidePacks,
        id: PackId,
        pack: Bytes,
        ids: &[[u8; 32]],
        pin: Pin,
    ) -> Result<(), StoreError> {
        let (object, size) = (format!("{id}-{:016x}", Owner::new().0), pack.len() as i64);
        let noted = format!("INSERT INTO @loose VALUES ($1, {NOW} + $2) ON CONFLICT (object) DO NOTHING");
        self.core.again(&noted, &Params::default().with(object.as_str()).with(TO_WRITE)).await?;
        outside.place.write(&object, pack).await?;
        // The lock on the row keeps a sweep from deleting the object while the pack is added; one that was faster is seen.
        let sql = format!(
            "WITH mine AS (SELECT object FROM @loose WHERE object = $6 AND until > {NOW} FOR UPDATE),
             staged AS (INSERT INTO @pack(id, ids, bytes, object, size) SELECT $1, $2, ''::bytea, object, $7 FROM mine
                        ON CONFLICT (id) DO UPDATE SET condemned = NULL RETURNING no, object),
             bound AS (DELETE FROM @loose AS loose USING staged WHERE loose.object = staged.object),
             listed AS (INSERT INTO @blob(id, pack) SELECT new.id, staged.no FROM staged, unnest($3) AS new(id)
                        ON CONFLICT DO NOTHING),
             pinned AS (INSERT INTO @pin(pack, owner, until) SELECT no, $4, {NOW} + $5 FROM staged
                        ON CONFLICT (pack, owner) DO UPDATE SET until = EXCLUDED.until)
             SELECT count(*) FROM staged"
        );
        let params = Params::default()
            .with(&id.as_bytes()[..])
            .with(ids.as_flattened())
            .with(ids.iter().map(|id| &id[..]).collect::<Vec<_>>())
            .with(pin.owner.0.cast_signed())
            .with(life(pin))
            .with(object.as_str())
            .with(size);
        let added = count(&self.core.one(&sql, &params).await?, 0)?;
        // If the answer of an earlier attempt was lost, it is there.
        if added == 1 || self.pin_those(&[id], pin).await?.len() == 1 {
            return Ok(());
        }
        Err(StoreError::Unavailable { detail: format!("{}: writing a large pack took too long", outside.place.url()) })
    }

    /// The bytes of a pack that is outside, or a part of them.
    pub(crate) async fn read_outside(&self, object: &str, part: Option<(u64, usize)>) -> Result<Bytes, StoreError> {
        self.outside()?.place.read(object, part).await
    }

    /// Deletes objects that no pack needs; says whether more are left.
    pub(crate) async fn sweep_outside(&self) -> Result<bool, StoreError> {
        let Some(outside) = &self.outside else { return Ok(false) };
        // From here on no writer can add a pack with one of them.
        let taken = format!(
            "UPDATE @loose SET until = 0 WHERE object IN
             (SELECT object FROM @loose WHERE until <= {NOW} ORDER BY until LIMIT $1) AND until <= {NOW} RETURNING object"
        );
        let rows = self.core.again(&taken, &Params::default().with(AT_ONCE as i64)).await?;
        for row in &rows {
            let object: &str = get(row, 0)?;
            outside.place.delete(object).await?;
            self.core.again("DELETE FROM @loose WHERE object = $1", &Params::default().with(object)).await?;
        }
        Ok(rows.len() == AT_ONCE)
    }

    /// Packs whose object is missing or has another size. Nothing but names is read.
    pub(crate) async fn inspect_outside(&self) -> Result<Vec<Defect>, StoreError> {
        let Some(outside) = &self.outside else { return Ok(Vec::new()) };
        // Rows first: what is added meanwhile is listed without a row, and not a row without an object.
        let rows =
            self.core.again("SELECT object, size, id FROM @pack WHERE object IS NOT NULL", &Params::default()).await?;
        let mut there: BTreeMap<String, u64> = BTreeMap::new();
        while !rows.is_empty() {
            let page = outside.place.list(there.keys().next_back().map(String::as_str), 1000).await?;
            if page.is_empty() {
                break;
            }
            there.extend(page);
        }
        let mut defects = Vec::new();
        for row in &rows {
            let (object, size): (&str, u64) = (get(row, 0)?, count(row, 1)?);
            let detail = match there.get(object) {
                Some(found) if *found == size => continue,
                Some(found) => format!("it has {found} bytes in {} and should have {size}", outside.place.url()),
                None => format!("it is missing in {}", outside.place.url()),
            };
            let pack = PackId::new(crate::params::id32(row, 2)?);
            defects.push(Defect { what: format!("staged pack {pack}"), detail });
        }
        Ok(defects)
    }
}
