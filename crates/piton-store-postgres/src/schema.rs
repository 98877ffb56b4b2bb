//! The tables, and what is looked at before a store is used. The shape of the tables is part of the format; `FORMAT` counts up
//! when it changes.

use deadpool_postgres::Transaction;
use piton_store::StoreError;
use tokio_postgres::Row;

use crate::OutsidePacks;
use crate::connect::Core;
use crate::errors::Failed;
use crate::params::{Params, get};

/// The newest format that this version reads and writes.
const FORMAT: u64 = 3;

/// The schema that a store is in unless its URL names another.
pub(crate) const DEFAULT_SCHEMA: &str = "piton";

/// The oldest server that is known to do what is asked of it.
const OLDEST: i32 = 130_000;

/// What an entry with its values, a pack or a segment may take: a message of the protocol has less than a gibibyte.
pub(crate) const MAX_ROW: u64 = 1_000_000_000;

/// The time in milliseconds, by the server.
pub(crate) const NOW: &str = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint";

/// Locks that Piton takes while it makes or changes tables are of this kind: "Pitn".
const MIGRATION: i64 = 0x5069_746e;

/// Ids and hashes are bytes; times are milliseconds since 1970; other texts have no NUL (see `text`).
///
/// `run` holds where the log ends, which an append compares and moves on: `seq`, `hash`, `fence`. `touched` is when that was, in
/// microseconds; `moved` is the run's place among those that moved, which the next reader of changes gives to it. In
/// `last_moved` stands the highest that was given.
///
/// `queue.rank` is the priority with the other sign, so that the order of the queue is an ascending one.
///
/// `removed` has the numbers of runs that were taken out of `run` and whose entries and segments are still to be deleted.
const TABLES: &[&str] = &[
    "CREATE TABLE @meta(key text COLLATE \"C\" PRIMARY KEY, value bytea NOT NULL)",
    "CREATE TABLE @run(
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text COLLATE \"C\" NOT NULL UNIQUE,
        seq bigint NOT NULL,
        hash bytea NOT NULL,
        fence bigint NOT NULL,
        updated_at bigint NOT NULL,
        touched bigint NOT NULL,
        moved bigint,
        status integer NOT NULL,
        kind integer NOT NULL,
        created_at bigint NOT NULL,
        name text COLLATE \"C\" NOT NULL,
        parent text,
        folder text COLLATE \"C\",
        labels text[] NOT NULL)",
    "CREATE INDEX run_listing ON @run(updated_at, id)",
    "CREATE INDEX run_status ON @run(status, updated_at, id)",
    "CREATE INDEX run_folder ON @run(folder, updated_at, id) WHERE folder IS NOT NULL",
    "CREATE INDEX run_moved ON @run(moved)",
    "CREATE TABLE @last_moved(place bigint NOT NULL)",
    "INSERT INTO @last_moved VALUES (0)",
    "CREATE TABLE @entry(
        run bigint NOT NULL,
        seq bigint NOT NULL,
        at bigint NOT NULL,
        fence bigint NOT NULL,
        hash bytea NOT NULL,
        entry bytea NOT NULL,
        pack bytea NOT NULL,
        PRIMARY KEY(run, seq))",
    "CREATE TABLE @segment(
        run bigint NOT NULL,
        first bigint NOT NULL,
        last bigint NOT NULL,
        entries bytea NOT NULL,
        idx bytea NOT NULL,
        nodes bytea NOT NULL,
        PRIMARY KEY(run, first))",
    "CREATE TABLE @pack(
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id bytea NOT NULL UNIQUE,
        condemned bigint,
        ids bytea NOT NULL,
        bytes bytea NOT NULL)",
    "CREATE TABLE @blob(id bytea NOT NULL, pack bigint NOT NULL, PRIMARY KEY(id, pack))",
    "CREATE TABLE @pin(pack bigint NOT NULL, owner bigint NOT NULL, until bigint NOT NULL, PRIMARY KEY(pack, owner))",
    "CREATE TABLE @removed(run bigint PRIMARY KEY)",
    "CREATE TABLE @lease(
        run bigint PRIMARY KEY REFERENCES @run(no) ON DELETE CASCADE,
        fence bigint NOT NULL,
        beat bigint NOT NULL,
        holder text)",
    "CREATE TABLE @queue(
        run bigint PRIMARY KEY REFERENCES @run(no) ON DELETE CASCADE,
        labels text COLLATE \"C\" NOT NULL,
        rank bigint NOT NULL,
        due bigint NOT NULL,
        attempts bigint NOT NULL,
        worker text COLLATE \"C\",
        key text COLLATE \"C\",
        at_once bigint,
        problem text)",
    "CREATE INDEX queue_order ON @queue(labels, rank, due, run)",
    "CREATE INDEX queue_worker ON @queue(worker) WHERE worker IS NOT NULL",
    "CREATE INDEX queue_key ON @queue(key) WHERE key IS NOT NULL AND worker IS NOT NULL",
    "CREATE TABLE @limited_key(key text COLLATE \"C\" PRIMARY KEY)",
    "CREATE TABLE @worker(
        name text COLLATE \"C\" PRIMARY KEY,
        info text NOT NULL,
        seen bigint NOT NULL,
        draining boolean NOT NULL)",
];

/// What each format has that the one before it doesn't, from the second on. What a handle of the format before does meanwhile
/// must stay right.
///
/// `pack.object` names the object that has the bytes of a pack, and `size` how many they are; `loose` has the objects that no
/// pack names (see `outside`).
///
/// `keeper` is one row: the worker that keeps house, and until when.
///
/// Rows of the queue change all the time, and a scan that looks for the next run passes the dead ones, so they are cleaned up
/// after so many, not after a share of the table.
///
/// `append` is a commit (see [`APPEND`]).
const CHANGES: [&[&str]; 2] = [
    &[
        "ALTER TABLE @pack ADD COLUMN object text COLLATE \"C\", ADD COLUMN size bigint",
        "CREATE TABLE @loose(object text COLLATE \"C\" PRIMARY KEY, until bigint NOT NULL)",
        "CREATE TABLE @keeper(worker text COLLATE \"C\" NOT NULL, until bigint NOT NULL)",
        "INSERT INTO @keeper VALUES ('', 0)",
        "ALTER TABLE @queue SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)",
        "ALTER TABLE @worker SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)",
        "ALTER TABLE @lease SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)",
    ],
    &[APPEND],
];

/// A commit of entries that follow each other. It creates the run if `before`, the number of the entry before them, is nothing; else
/// it moves the run's row on if that is where the writer says and no higher fence is there. Then it gives nothing.
///
/// Packs that the entries rely on are taken off the condemned list first, so that a sweep beside it either has deleted them or
/// doesn't; if one is missing, nothing else is written. If nothing was, it gives those that are there.
///
/// A session keeps the plans, and may have made them when a table was small: none of them reads a whole table.
const APPEND: &str = "
CREATE FUNCTION @append(
    new_id text, before bigint, new_parent_hash bytea, new_seq bigint, new_hash bytea, new_fence bigint, new_updated_at bigint,
    new_status integer, new_kind integer, new_created_at bigint, new_name text, new_parent text, new_folder text,
    new_labels text[], seqs bigint[], times bigint[], hashes bytea[], entries bytea[], packs bytea[],
    staged bytea[], owners bigint[])
RETURNS bytea[] LANGUAGE plpgsql SET enable_seqscan TO off AS $$
DECLARE
    kept bytea[] := '{}';
    run_no bigint;
    pack_nos bigint[];
BEGIN
    IF cardinality(staged) > 0 THEN
        WITH there AS (UPDATE @pack SET condemned = NULL WHERE id = ANY(staged) RETURNING id, no)
        SELECT coalesce(array_agg(id), '{}'), array_agg(no) INTO kept, pack_nos FROM there;
        IF cardinality(kept) < cardinality(staged) THEN
            RETURN kept;
        END IF;
    END IF;
    IF before IS NULL THEN
        INSERT INTO @run(id, seq, hash, fence, updated_at, touched, status, kind, created_at, name, parent, folder, labels)
        VALUES (new_id, new_seq, new_hash, new_fence, new_updated_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
            new_status, new_kind, new_created_at, new_name, new_parent, new_folder, new_labels)
        ON CONFLICT (id) DO NOTHING RETURNING no INTO run_no;
    ELSIF new_status IS NULL THEN
        UPDATE @run SET seq = new_seq, hash = new_hash, fence = new_fence, updated_at = new_updated_at,
            touched = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, moved = NULL
        WHERE id = new_id AND seq = before AND hash = new_parent_hash AND fence <= new_fence RETURNING no INTO run_no;
    ELSE
        UPDATE @run SET seq = new_seq, hash = new_hash, fence = new_fence, updated_at = new_updated_at,
            touched = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, moved = NULL,
            status = new_status, kind = new_kind, created_at = new_created_at, name = new_name, parent = new_parent,
            folder = new_folder, labels = new_labels
        WHERE id = new_id AND seq = before AND hash = new_parent_hash AND fence <= new_fence RETURNING no INTO run_no;
    END IF;
    IF run_no IS NULL THEN
        RETURN kept;
    END IF;
    IF cardinality(staged) > 0 THEN
        DELETE FROM @pin WHERE pack = ANY(pack_nos) AND owner = ANY(owners);
    END IF;
    INSERT INTO @entry(run, seq, at, fence, hash, entry, pack)
    SELECT run_no, one.seq, one.at, new_fence, one.hash, one.entry, one.pack
    FROM unnest(seqs, times, hashes, entries, packs) AS one(seq, at, hash, entry, pack);
    RETURN NULL;
END $$";

/// Where the name of the place for large packs stands in `meta`.
const BLOBS: &str = "blobs";

/// What is in the place of the schema.
enum Found {
    /// No such schema.
    Nothing,
    /// A schema without anything in it.
    Empty,
    /// One with something in it, but no table of ours.
    Foreign,
    /// A store.
    Store,
}

/// Looks at the server and the schema, and makes the tables if there are none and the caller wants that; changes those of an
/// older format. Gives the place for large packs, if the store has it.
pub(crate) async fn open(
    core: &Core,
    create: bool,
    outside: Option<OutsidePacks>,
) -> Result<Option<OutsidePacks>, StoreError> {
    suits(core).await?;
    let named = Params::default().with(core.schema.as_str());
    match found(core.again(LOOK, &named).await?.first())? {
        Found::Store => {}
        Found::Nothing | Found::Empty if !create => {
            return Err(StoreError::NotFound { what: format!("schema {} of {}", core.schema, core.shown) });
        }
        Found::Foreign => return Err(foreign(core)),
        Found::Nothing | Found::Empty => make(core).await?,
    }
    let rows = core.again(FORMAT_OF, &Params::default()).await?;
    if format(core, rows.first())? < FORMAT {
        change(core).await?;
    }
    place(core, create, outside).await
}

const FORMAT_OF: &str = "SELECT value FROM @meta WHERE key = 'format'";

fn format(core: &Core, row: Option<&Row>) -> Result<u64, StoreError> {
    let corrupt = || StoreError::corrupt(&core.shown, "its format isn't a number");
    let text = std::str::from_utf8(get(row.ok_or_else(corrupt)?, 0)?).map_err(|_| corrupt())?;
    match text.parse().map_err(|_| corrupt())? {
        found if found > FORMAT => Err(StoreError::TooNew { what: core.shown.clone(), found, known: FORMAT }),
        found => Ok(found),
    }
}

/// The place for large packs: the one that the store was first given, and no other.
async fn place(core: &Core, create: bool, outside: Option<OutsidePacks>) -> Result<Option<OutsidePacks>, StoreError> {
    let wanted = outside.as_ref().map(|outside| outside.place.url());
    let mut found = known_place(core).await?;
    if found.is_none()
        && create
        && let (Some(outside), Some(url)) = (&outside, &wanted)
    {
        outside.try_out().await?;
        let params = Params::default().with(BLOBS).with(url.clone().into_bytes());
        core.again("INSERT INTO @meta VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", &params).await?;
        found = known_place(core).await?;
    }
    match (found, wanted) {
        (Some(found), wanted) if wanted.as_ref() != Some(&found) => Err(StoreError::Invalid {
            what: format!("the place for large packs of {}", core.shown),
            detail: format!(
                "it is {found}, and the URL {}",
                match wanted {
                    Some(wanted) => format!("says blobs={wanted}"),
                    None => "doesn't say so".to_owned(),
                }
            ),
        }),
        (found, _) => Ok(outside.filter(|_| found.is_some())),
    }
}

async fn known_place(core: &Core) -> Result<Option<String>, StoreError> {
    let rows = core.again("SELECT value FROM @meta WHERE key = $1", &Params::default().with(BLOBS)).await?;
    rows.first().map(|row| Ok(String::from_utf8_lossy(get(row, 0)?).into_owned())).transpose()
}

/// Whether the server is one that a store can be on.
async fn suits(core: &Core) -> Result<(), StoreError> {
    let sql = "SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
               current_setting('server_encoding'), pg_is_in_recovery(), current_setting('fsync'),
               current_setting('synchronous_commit')";
    let rows = core.once(sql, &Params::default()).await.map_err(Failed::into_error)?;
    let row = rows.first().ok_or_else(|| StoreError::corrupt(&core.shown, "an answer has no row"))?;
    let unfit = fitness(get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 4)?, get(row, 5)?);
    if let Some(detail) = unfit {
        return Err(StoreError::Invalid { what: format!("the server of {}", core.shown), detail });
    }
    match get(row, 3)? {
        true => Err(StoreError::ReadOnly { what: format!("{}, a standby server,", core.shown) }),
        false => Ok(()),
    }
}

/// Why a server can't have a store on it.
fn fitness(number: i32, version: &str, encoding: &str, fsync: &str, commit: &str) -> Option<String> {
    if number < OLDEST {
        return Some(format!("it is PostgreSQL {version}, and 13 or newer is needed"));
    }
    if encoding != "UTF8" {
        return Some(format!("its database is encoded in {encoding}, and UTF8 is needed"));
    }
    if fsync == "off" {
        return Some("it runs with fsync = off, so what it acknowledges doesn't survive a power cut".to_owned());
    }
    if commit == "off" {
        return Some(
            "it runs with synchronous_commit = off, so what it acknowledges doesn't survive a crash".to_owned(),
        );
    }
    None
}

/// Whether there is such a schema, how much is in it, and whether that is ours.
const LOOK: &str = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1),
    (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1),
    (SELECT count(*) = 2 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = $1 AND c.relname IN ('last_moved', 'meta'))";

fn found(row: Option<&Row>) -> Result<Found, StoreError> {
    let row = row.ok_or_else(|| StoreError::corrupt("the catalog", "an answer has no row"))?;
    Ok(match (get(row, 0)?, get::<i64>(row, 1)?, get(row, 2)?) {
        (false, _, _) => Found::Nothing,
        (true, _, true) => Found::Store,
        (true, 0, false) => Found::Empty,
        (true, _, false) => Found::Foreign,
    })
}

fn foreign(core: &Core) -> StoreError {
    StoreError::Invalid {
        what: format!("schema {} of {}", core.schema, core.shown),
        detail: "it has tables that Piton didn't make".to_owned(),
    }
}

/// Makes the tables in one transaction, under a lock that every process takes that wants to.
async fn make(core: &Core) -> Result<(), StoreError> {
    let mut client = core.connection().await?;
    let failed = |error: tokio_postgres::Error| core.failed(&error).into_error();
    let transaction = client.transaction().await.map_err(failed)?;
    let lock = Params::default().with(MIGRATION);
    core.within(&transaction, "SELECT pg_advisory_xact_lock($1)", &lock).await.map_err(Failed::into_error)?;
    let named = Params::default().with(core.schema.as_str());
    let rows = core.within(&transaction, LOOK, &named).await.map_err(Failed::into_error)?;
    let found = found(rows.first())?;
    if matches!(found, Found::Store) {
        return Ok(());
    }
    let schema = format!("CREATE SCHEMA \"{}\"", core.schema);
    let begin = matches!(found, Found::Nothing).then_some(&*schema);
    let format = "INSERT INTO @meta VALUES ('format', '1')";
    for text in begin.into_iter().chain(TABLES.iter().copied()).chain([format]) {
        transaction.batch_execute(&core.sql(text)).await.map_err(failed)?;
    }
    change_from(core, &transaction, 1).await?;
    transaction.commit().await.map_err(failed)
}

/// Brings the tables to the newest format, in one transaction under the same lock.
async fn change(core: &Core) -> Result<(), StoreError> {
    let mut client = core.connection().await?;
    let failed = |error: tokio_postgres::Error| core.failed(&error).into_error();
    let transaction = client.transaction().await.map_err(failed)?;
    let lock = Params::default().with(MIGRATION);
    core.within(&transaction, "SELECT pg_advisory_xact_lock($1)", &lock).await.map_err(Failed::into_error)?;
    let rows = core.within(&transaction, FORMAT_OF, &Params::default()).await.map_err(Failed::into_error)?;
    let found = format(core, rows.first())?;
    change_from(core, &transaction, found).await?;
    transaction.commit().await.map_err(failed)
}

async fn change_from(core: &Core, transaction: &Transaction<'_>, format: u64) -> Result<(), StoreError> {
    let failed = |error: tokio_postgres::Error| core.failed(&error).into_error();
    let known = usize::try_from(format.saturating_sub(1)).unwrap_or(usize::MAX);
    let missing: Vec<&str> = CHANGES.iter().skip(known).copied().flatten().copied().collect();
    for text in missing {
        transaction.batch_execute(&core.sql(text)).await.map_err(failed)?;
    }
    let now = format!("UPDATE @meta SET value = '{FORMAT}' WHERE key = 'format'");
    transaction.batch_execute(&core.sql(&now)).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_keep_a_store_is_found_out() {
        assert_eq!(fitness(130_000, "13.0", "UTF8", "on", "on"), None);
        assert_eq!(fitness(170_002, "17.2", "UTF8", "on", "remote_apply"), None);
        for (unfit, expected) in [
            (fitness(120_009, "12.9", "UTF8", "on", "on"), "PostgreSQL 12.9, and 13 or newer"),
            (fitness(150_000, "15.0", "LATIN1", "on", "on"), "LATIN1"),
            (fitness(150_000, "15.0", "UTF8", "off", "on"), "fsync = off"),
            (fitness(150_000, "15.0", "UTF8", "on", "off"), "synchronous_commit = off"),
        ] {
            assert!(unfit.as_ref().is_some_and(|text| text.contains(expected)), "{unfit:?}");
        }
    }
}
