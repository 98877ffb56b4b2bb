//! What an append costs beside a bare insert of the same bytes into a plain SQLite database, on the same
//! disk. They take turns, and the medians are compared.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and fails by panicking")]

#[path = "../tests/it/support.rs"]
mod support;

use std::time::{Duration, Instant};

use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::Durability;
use support::{Line, block_on, open};

const COMMITS: usize = 1500;

/// A plain database whose WAL has as many pages.
fn plain(folder: &tempfile::TempDir) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(folder.path().join("plain.db")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE t(key INTEGER PRIMARY KEY, entry BLOB, pack BLOB);
         INSERT INTO t(entry, pack) VALUES ('', zeroblob(4000000)); DELETE FROM t; PRAGMA wal_checkpoint(RESTART);",
    )
    .unwrap();
    conn
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    for size in [300, 3000] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line { size, ..Line::relaxed("run") };
        // Until SQLite has begun the WAL again.
        block_on(line.grow(&store, 1500));
        line.durability = Durability::Durable;
        let conn = plain(&folder);
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..COMMITS {
            let commit = line.next();
            line.advance(&commit);
            let (entry, pack) = (commit.entry.clone(), commit.pack.clone());
            let started = Instant::now();
            runtime.block_on(piton_store::Log::append(&store, vec![commit])).unwrap();
            ours.push(started.elapsed());
            let started = Instant::now();
            conn.prepare_cached("INSERT INTO t(entry, pack) VALUES (?1, ?2)")
                .unwrap()
                .execute(rusqlite::params![&entry[..], &pack[..]])
                .unwrap();
            bare.push(started.elapsed());
        }
        let (ours, bare) = (median(&mut ours), median(&mut bare));
        println!("{size:5} bytes: append {ours:8.1} µs, bare insert {bare:8.1} µs, {:.2} x", ours / bare);
        println!("       {:?}", store.counters());
    }
}
