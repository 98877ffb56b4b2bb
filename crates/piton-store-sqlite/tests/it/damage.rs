//! Promise 5: each byte of a small store, flipped, is without effect or a typed error, closed as well as
//! after a kill. The only thing that may be lost is the last commit of a WAL that a crash left, and only
//! if the damage is in it.
//!
//! `PITON_TEST=full` flips every byte of the database too; without it every seventh, and every byte of the WAL.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use piton_store::{
    Blobs as _, Fold as _, Leases as _, Log as _, RunIndex as _, RunQuery, Section, Segment, SegmentInfo, Span,
    StoreError, Upkeep as _,
};
use piton_store_sqlite::{DamagedWal, SqliteOptions, SqliteStore};
use piton_testing::id;
use piton_types::{BlobId, Durability, Fence, Holder, RunId, Seq};
use tempfile::TempDir;

use crate::child::Process;
use crate::support::{Line, block_on, open};

/// In memory if there is such a place: every case writes and syncs a whole store.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// A closed store with something in each table.
fn closed_store() -> TempDir {
    let folder = scratch();
    let store = open(&folder);
    block_on(async {
        let mut line = Line::relaxed("first");
        line.size = 60;
        line.grow(&store, 6).await;
        let part = |text: &str| bytes::Bytes::from(text.repeat(9));
        let info = SegmentInfo { first: Seq(0), last: Seq(2) };
        let segment = Segment { info, entries: part("entries"), index: part("index"), nodes: part("nodes") };
        store.fold(&line.run, segment).await.unwrap();
        line.size = 5000;
        line.grow(&store, 1).await;
        let pack =
            piton_store::stage(&store, part("pack"), &[BlobId::new([3; 32])], piton_store::Pin::new()).await.unwrap();
        let mut commit = line.next();
        commit.staged = vec![pack];
        store.append(vec![commit]).await.unwrap();
        let holder = Holder { host: "h".into(), boot: "b".into(), pid: 1, started: 2 };
        store.beat(&line.run, Fence(1), &holder).await.unwrap();
    });
    drop(store);
    folder
}

/// The same, then four durable commits by a process that was killed.
fn killed_store() -> TempDir {
    let folder = closed_store();
    let mut process = Process::start("small", &folder.path().join("store.db"));
    assert_eq!(process.hear().as_deref(), Some("ready"));
    process.kill();
    folder
}

/// Everything that a store says.
async fn dump(store: &SqliteStore) -> Result<String, StoreError> {
    let runs = store.list(RunQuery::default()).await?;
    let mut all = format!("{runs:?}");
    for run in ["first", "second"].map(id) {
        all += &format!("{:?}{:?}", store.head(&run).await?, store.summary(&run).await?);
        if store.head(&run).await?.is_none() {
            continue;
        }
        all += &format!("{:?}", store.read(&run, Span { packs: true, ..Span::ALL }).await?);
        for segment in store.segments(&run).await? {
            for section in [Section::Entries, Section::Index, Section::Nodes] {
                all += &format!("{segment}{:?}", store.section(&run, segment, section).await?);
            }
        }
        all += &format!("{:?}", store.lease(&run).await?);
    }
    for pack in store.locate(&[BlobId::new([3; 32]), BlobId::new([4; 32])]).await?.into_iter().flatten() {
        all += &format!("{pack:?}{:?}", store.pack(pack).await?);
    }
    Ok(all)
}

/// The files of a store.
type Files = BTreeMap<String, Vec<u8>>;

fn load(folder: &Path) -> Files {
    ["store.db", "store.db-wal"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), fs::read(folder.join(name)).ok()?)))
        .collect()
}

fn lay_out(files: &Files, folder: &Path) -> PathBuf {
    for entry in fs::read_dir(folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (name, content) in files {
        fs::write(folder.join(name), content).unwrap();
    }
    folder.join("store.db")
}

fn look(path: &Path, options: &SqliteOptions) -> Result<String, StoreError> {
    let store = SqliteStore::open(path, options.clone())?;
    block_on(dump(&store))
}

/// What came of the flips.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    unaffected: usize,
    refused: usize,
    lost_last: usize,
    silent: Vec<(String, usize)>,
}

/// Flips one byte at a time and looks at what is read then. `shorter` is what may be read if the byte is
/// in the last commit of the WAL, which begins at `last`.
fn flip(files: &Files, which: &[(&str, usize)], last: usize, shorter: &str, options: &SqliteOptions) -> Tally {
    let folder = scratch();
    let whole = look(&lay_out(files, folder.path()), options).unwrap();
    let cases: Vec<(&str, usize)> = which
        .iter()
        .flat_map(|(name, step)| (0..files[*name].len()).step_by(*step).map(move |at| (*name, at)))
        .collect();
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let folder = scratch();
                let mut files = files.clone();
                while let Some((name, at)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let flipped = 1 << (at % 8);
                    files.get_mut(*name).unwrap()[*at] ^= flipped;
                    let seen = look(&lay_out(&files, folder.path()), options);
                    files.get_mut(*name).unwrap()[*at] ^= flipped;
                    let mut tally = tally.lock().unwrap();
                    match seen {
                        Ok(seen) if seen == whole => tally.unaffected += 1,
                        Ok(seen) if *name == "store.db-wal" && *at >= last && seen == shorter => tally.lost_last += 1,
                        Ok(_) => tally.silent.push(((*name).to_owned(), *at)),
                        Err(
                            StoreError::Corrupt { .. }
                            | StoreError::DamagedWal { .. }
                            | StoreError::Invalid { .. }
                            // A pack has another name then.
                            | StoreError::NotFound { .. }
                            | StoreError::TooNew { .. },
                        ) => tally.refused += 1,
                        Err(other) => panic!("{name} at {at}: {other:?}"),
                    }
                }
            });
        }
    });
    tally.into_inner().unwrap()
}

fn database_step() -> usize {
    if std::env::var("PITON_TEST").is_ok_and(|level| level == "full") { 1 } else { 7 }
}

#[test]
fn no_flip_in_a_closed_store_is_silent() {
    let files = load(closed_store().path());
    assert_eq!(files.len(), 1, "no log");
    let tally = flip(&files, &[("store.db", database_step())], usize::MAX, "", &SqliteOptions::default());
    println!("closed: {tally:?}");
    assert_eq!((&tally.silent[..], tally.lost_last), (&[][..], 0));
    assert!(tally.refused > 0 && tally.unaffected > 0);
}

#[test]
fn without_page_checksums_flips_are_silent() {
    let files = load(closed_store().path());
    let mut options = SqliteOptions::default();
    options.verify_pages = false;
    let tally = flip(&files, &[("store.db", 61)], usize::MAX, "", &options);
    println!("closed, unchecked: {} silent, {} refused", tally.silent.len(), tally.refused);
    assert!(!tally.silent.is_empty(), "the harness would not have noticed");
}

/// Where the last commit of a WAL begins.
fn last_commit(log: &[u8]) -> usize {
    let salts = &log[16..24];
    let frames = log[32..].chunks_exact(24 + 4096).take_while(|frame| &frame[8..16] == salts);
    let mut starts: Vec<usize> = vec![0];
    starts.extend(frames.enumerate().filter(|(_, frame)| frame[4..8] != [0; 4]).map(|(number, _)| number + 1));
    32 + starts[starts.len() - 2] * (24 + 4096)
}

/// What a killed store says without its last commit.
fn without_last_commit(files: &Files) -> (usize, String) {
    let last = last_commit(&files["store.db-wal"]);
    let mut files = files.clone();
    files.get_mut("store.db-wal").unwrap().truncate(last);
    let folder = scratch();
    (last, look(&lay_out(&files, folder.path()), &SqliteOptions::default()).unwrap())
}

#[test]
fn no_flip_in_a_killed_store_is_silent() {
    let files = load(killed_store().path());
    let (last, shorter) = without_last_commit(&files);
    let which = [("store.db-wal", 1), ("store.db", database_step())];
    let tally = flip(&files, &which, last, &shorter, &SqliteOptions::default());
    println!("killed: {tally:?}, the last commit begins at {last} of {}", files["store.db-wal"].len());
    assert_eq!(tally.silent, []);
    assert!(tally.refused > 0 && tally.lost_last > 0);
}

#[test]
fn without_the_scan_of_the_log_commits_vanish() {
    let files = load(killed_store().path());
    let (last, shorter) = without_last_commit(&files);
    let mut options = SqliteOptions::default();
    options.scan_wal = false;
    let tally = flip(&files, &[("store.db-wal", 97)], last, &shorter, &options);
    println!("killed, unscanned: {} silent, {} refused", tally.silent.len(), tally.refused);
    assert!(!tally.silent.is_empty(), "the harness would not have noticed");
}

#[test]
fn a_damaged_log_is_kept_once_and_given_up_only_on_request() {
    let folder = killed_store();
    let (path, log) = (folder.path().join("store.db"), folder.path().join("store.db-wal"));
    let copy = folder.path().join("store.db-wal.damaged-1");
    let mut content = fs::read(&log).unwrap();
    let last = last_commit(&content);
    content[last - 2000] ^= 1;
    fs::write(&log, &content).unwrap();
    for _ in 0..3 {
        let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
        let text = error.to_string();
        let StoreError::DamagedWal { wal: damaged, before, behind, copy: kept } = error else { panic!("{error}") };
        assert_eq!((damaged, before, behind, kept.as_deref()), (log.clone(), 2, 1, Some(&*copy)));
        assert!(text.contains("2 commits are before the damage and 1 behind it; a copy is in "), "{text}");
        assert_eq!(fs::read(&copy).unwrap(), content);
        assert_eq!(fs::read(&log).unwrap(), content, "the log itself is untouched");
    }
    assert!(!folder.path().join("store.db-wal.damaged-2").exists());
    let options = SqliteOptions::default().with_damaged_wal(DamagedWal::KeepPrefix);
    let store = SqliteStore::open(&path, options).unwrap();
    let second: RunId = id("second");
    let kept = block_on(store.head(&second)).unwrap().unwrap().seq;
    assert_eq!(kept, Seq(1), "of four, the third is damaged and the fourth behind it");
    let mut line = Line::relaxed("second");
    line.head = block_on(store.head(&second)).unwrap();
    block_on(line.grow(&store, 2));
    drop(store);
    assert_eq!(block_on(open(&folder).head(&second)).unwrap(), line.head);
    assert_eq!(fs::read(&copy).unwrap(), content);
}

/// Relaxed commits that a durable one made durable are held to after a power cut: damage in them is told of. Behind the
/// last sync the WAL may end anywhere, and what can be read counts.
#[test]
fn relaxed_commits_before_a_durable_one_are_held_to_after_a_power_cut() {
    let (taken, folder) = (scratch(), scratch());
    let store = open(&taken);
    let mut line = Line::relaxed("first");
    block_on(async {
        line.grow(&store, 11).await;
        line.durability = Durability::Durable;
        line.grow(&store, 1).await;
        line.durability = Durability::Relaxed;
    });
    let synced = fs::read(taken.path().join("store.db-wal")).unwrap();
    block_on(line.grow(&store, 12));
    let mut files = load(taken.path());
    // The machine was started again since.
    let mut mark = fs::read(taken.path().join("store.db-lock")).unwrap();
    mark.iter_mut().take(16).for_each(|byte| *byte ^= 0xff);
    files.insert("store.db-lock".to_owned(), mark);
    let (end, frame) = (synced.len(), 24 + 4096);
    for (at, is_synced) in [(end - frame, true), (end - 3 * frame, true), (end + frame, false)] {
        let mut files = files.clone();
        files.get_mut("store.db-wal").unwrap()[at + 100] ^= 1;
        let opened = SqliteStore::open(lay_out(&files, folder.path()), SqliteOptions::default());
        match opened {
            Err(StoreError::DamagedWal { .. }) => assert!(is_synced, "{at} of {end}"),
            Err(error) => panic!("{error}"),
            Ok(store) => {
                assert!(!is_synced, "{at} of {end}: acknowledged commits vanished");
                let head = block_on(store.head(&line.run)).unwrap().unwrap();
                assert!(head.seq >= Seq(11), "{head:?}");
            }
        }
    }
}

/// Wherever in its last page a database is cut off, the first check says so, and so does the next.
#[test]
fn a_database_that_is_cut_off_in_its_last_page_is_found_at_once() {
    let files = load(closed_store().path());
    let folder = scratch();
    let length = files["store.db"].len();
    for cut in [1, 8, 9, 100, 2048, 4000, 4095] {
        let mut files = files.clone();
        files.get_mut("store.db").unwrap().truncate(length - cut);
        let path = lay_out(&files, folder.path());
        for attempt in ["first", "second"] {
            let store = match SqliteStore::open(&path, SqliteOptions::default()) {
                Ok(store) => store,
                Err(StoreError::Corrupt { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            let defects = block_on(store.inspect()).unwrap();
            // Written to, the file is as long as it was, and of a page of which nothing was left there are zeros.
            let is_found = !defects.is_empty() || (attempt == "second" && block_on(dump(&store)).is_err());
            assert!(is_found, "{cut}, {attempt}");
            // What a check that finds nothing writes down, so that the database is written to.
            block_on(store.set_note("a note", Some("of something".into()))).unwrap();
        }
    }
    for pages in [1, 2] {
        let mut files = files.clone();
        files.get_mut("store.db").unwrap().truncate(length - pages * 4096);
        let opened = SqliteStore::open(lay_out(&files, folder.path()), SqliteOptions::default());
        assert!(matches!(opened, Err(StoreError::Corrupt { .. })), "{pages}");
    }
}

/// A page of which the file has a part is never taken for a whole one whose rest is zeros.
#[test]
fn no_page_that_is_cut_off_is_read_as_zeros() {
    let files = load(closed_store().path());
    let folder = scratch();
    let whole = look(&lay_out(&files, folder.path()), &SqliteOptions::default()).unwrap();
    let (length, mut refused) = (files["store.db"].len(), 0);
    for cut in (1..4096).step_by(61) {
        let mut files = files.clone();
        files.get_mut("store.db").unwrap().truncate(length - cut);
        match look(&lay_out(&files, folder.path()), &SqliteOptions::default()) {
            Ok(seen) => assert_eq!(seen, whole, "{cut}"),
            Err(StoreError::Corrupt { .. }) => refused += 1,
            Err(error) => panic!("{cut}: {error}"),
        }
    }
    println!("{refused} of {} cuts refused", 4096_usize.div_ceil(61));
}
