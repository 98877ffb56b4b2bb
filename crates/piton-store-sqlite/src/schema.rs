//! The tables. Their shape is part of the format; `FORMAT` counts up when it changes.

use piton_types::Seq;
use rusqlite::Connection;

/// Marks a database as a Piton store: "Pitn".
pub(crate) const APPLICATION_ID: u32 = 0x5069_746e;
/// The newest format that this version reads and writes.
pub(crate) const FORMAT: u32 = 1;
/// Bytes in a page.
pub(crate) const PAGE: usize = 4096;
/// Bytes at the end of each page that hold its checksum.
pub(crate) const RESERVED: u8 = 8;
/// SQLite's limit on a row, less some room for the other columns.
pub(crate) const MAX_ROW: u64 = 1_000_000_000 - 4096;

/// In every table the large columns come last, so that the others are read without overflow pages.
///
/// `pack.ids` are the ids of its blobs, sorted; `blob` finds candidates by their first eight bytes. What becomes of a
/// pack is in tables of its own, because SQLite reads a row as a whole to change any of it: `pin` says which writer may
/// still commit it and until when, `condemned` since when no run was found to need it.
///
/// `run.moved` is the order in which runs last moved: one that is committed to and isn't the last becomes it. In `meta`
/// stands the highest that a removed run had.
///
/// `run.labels` is a JSON array, or nothing if there are none. `label` is made from it and lists runs by label; `at` and
/// `run_id` are those of the run's row.
///
/// `removed` has the numbers of runs that were taken out of `run` and whose entries and segments are still to be
/// deleted. Numbers of runs are never used again, so an old one that a process remembers leads nowhere.
const TABLES: &str = "
    CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE run(
        no INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        status INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        name TEXT NOT NULL,
        parent TEXT,
        folder TEXT,
        labels TEXT,
        moved INTEGER NOT NULL);
    CREATE INDEX run_moved ON run(moved);
    CREATE INDEX run_status ON run(status, updated_at, id);
    CREATE INDEX run_folder ON run(folder, updated_at, id) WHERE folder IS NOT NULL;
    CREATE TABLE label(
        run INTEGER NOT NULL,
        label TEXT NOT NULL,
        at INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        PRIMARY KEY(run, label)) WITHOUT ROWID;
    CREATE INDEX label_listing ON label(label, at, run_id);
    CREATE TABLE entry(
        key INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        fence INTEGER NOT NULL,
        hash BLOB NOT NULL,
        entry BLOB NOT NULL,
        pack BLOB NOT NULL);
    CREATE TABLE segment(
        key INTEGER PRIMARY KEY,
        last INTEGER NOT NULL,
        entries BLOB NOT NULL,
        idx BLOB NOT NULL,
        nodes BLOB NOT NULL);
    CREATE TABLE pack(
        no INTEGER PRIMARY KEY AUTOINCREMENT,
        id BLOB NOT NULL UNIQUE,
        ids BLOB NOT NULL,
        bytes BLOB NOT NULL);
    CREATE TABLE pin(
        pack INTEGER NOT NULL,
        owner INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY(pack, owner)) WITHOUT ROWID;
    CREATE TABLE condemned(pack INTEGER PRIMARY KEY, since INTEGER NOT NULL);
    CREATE TABLE removed(run INTEGER PRIMARY KEY);
    CREATE TABLE lease(
        run INTEGER PRIMARY KEY,
        fence INTEGER NOT NULL,
        beat INTEGER NOT NULL,
        holder TEXT);
    CREATE TABLE queue(
        run INTEGER PRIMARY KEY,
        priority INTEGER NOT NULL,
        due INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        labels TEXT NOT NULL,
        worker TEXT,
        key TEXT,
        at_once INTEGER,
        problem TEXT);
    CREATE INDEX queue_order ON queue(labels, priority DESC, due, run);
    CREATE INDEX queue_worker ON queue(worker) WHERE worker IS NOT NULL;
    CREATE INDEX queue_key ON queue(key) WHERE worker IS NOT NULL;
    CREATE TABLE worker(name TEXT PRIMARY KEY, info TEXT NOT NULL, seen INTEGER NOT NULL, draining INTEGER NOT NULL);
    INSERT INTO meta VALUES ('moved', 0);
    INSERT INTO meta VALUES ('store', lower(hex(randomblob(16))));
";

/// The table that finds blobs, which is made from `pack.ids` and can be made anew from them.
pub(crate) const BLOB_TABLE: &str =
    "CREATE TABLE blob(prefix INTEGER NOT NULL, pack INTEGER NOT NULL, PRIMARY KEY(prefix, pack)) WITHOUT ROWID;";

/// Makes the tables of a new store in an empty database.
pub(crate) fn create(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(&format!(
        "BEGIN IMMEDIATE; {TABLES} {BLOB_TABLE} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
    ))
}

/// The key of an entry or segment: the run's number, then the entry's.
pub(crate) fn key(run: i64, seq: Seq) -> i64 {
    run << 32 | i64::from(seq.0)
}

/// The entry's number in a key.
pub(crate) fn seq_of(key: i64) -> Seq {
    Seq(u32::try_from(key & 0xffff_ffff).expect("32 bits are left"))
}

/// The largest run number that leaves room for the entry's.
pub(crate) const MAX_RUN: i64 = i32::MAX as i64;
