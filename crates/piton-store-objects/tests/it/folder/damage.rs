//! Promise 5 on a small store in a folder: every byte flipped, dropped, swapped, every file cut, missing or in another's
//! place; and a thousand seeded damages. Nothing is silent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use piton_store::{Hashing, Owner, Pin, RunQuery, Section, Segment, SegmentInfo, Span, StoreError};
use piton_testing::SeededRandom;
use piton_testing::flip::{Change, Outcome, Sweep};
use piton_testing::scratch::{Scratch, copy_tree};
use piton_types::{Seq, Timestamp};

use super::{SEED, by_level, open, try_open};
use crate::support::{Line, block_on, id};

/// Everything that a store gives.
type All = Vec<String>;

/// The writer of this store, in whose name the commits of a line end pins.
const PIN: Pin = Pin { owner: Owner(0), life: Pin::LIFE };

/// Two runs, a segment, two packs, a note.
fn build(folder: &Path) {
    let store = open(folder);
    block_on(async {
        let mut one = Line::new("one");
        one.size = 400;
        one.grow(&*store, 4).await;
        let section = |name: &str| Bytes::from(name.repeat(9));
        let info = SegmentInfo { first: Seq(0), last: Seq(1) };
        let segment = Segment { info, entries: section("e"), index: section("i"), nodes: section("n") };
        store.fold(&one.run, segment).await.unwrap();
        let pack = piton_store::stage(&*store, "a pack".into(), &[Hashing::PLAIN.blob(b"a")], PIN).await.unwrap();
        store.append(vec![piton_store::Commit { staged: vec![pack], ..one.next() }]).await.unwrap();
        let other = piton_store::stage(
            &*store,
            "another".into(),
            &[Hashing::PLAIN.blob(b"b")],
            Pin { life: Duration::ZERO, ..PIN },
        )
        .await
        .unwrap();
        assert_eq!(store.condemn(&[other], Timestamp::from_millis(77)).await.unwrap(), 1);
        Line::new("Two").grow(&*store, 1).await;
        store.set_note("when", Some("yesterday".into())).await.unwrap();
        store.close().await.unwrap();
    });
}

/// Reads all of it.
fn read(folder: &Path) -> Result<All, StoreError> {
    let store = try_open(folder)?;
    block_on(async {
        let mut all = Vec::new();
        for run in ["one", "Two"] {
            let run = id(run);
            all.push(format!("{:?}", store.head(&run).await?));
            all.push(format!("{:?}", store.read(&run, Span { packs: true, ..Span::ALL }).await?));
            for info in store.segments(&run).await? {
                for section in [Section::Entries, Section::Index, Section::Nodes] {
                    all.push(format!("{:?}", store.section(&run, info, section).await?));
                }
            }
            all.push(format!("{:?}", store.summary(&run).await?));
        }
        all.push(format!("{:?}", store.list(RunQuery::default()).await?));
        let ids = [Hashing::PLAIN.blob(b"a"), Hashing::PLAIN.blob(b"b")];
        all.push(format!("{:?}", store.locate(&ids).await?));
        for pack in [b"a pack".as_slice(), b"another"].map(|pack| Hashing::PLAIN.pack(pack)) {
            all.push(format!("{:?} {:?}", store.pack(pack).await?, store.pack_ids(pack).await?));
        }
        let packs = store.packs(None, 9).await?;
        all.push(format!("{:?}", packs.iter().map(|pack| (pack.id, pack.size)).collect::<Vec<_>>()));
        all.push(format!("{:?}", store.note("when").await?));
        Ok(all)
    })
}

fn outcome(folder: &Path, expected: &All) -> Outcome {
    match read(folder) {
        Ok(all) if all == *expected => Outcome::Same,
        Ok(all) => {
            let differs = all.iter().zip(expected).find(|(a, b)| a != b).map(|(a, _)| a.chars().take(200).collect());
            Outcome::Silent(differs.unwrap_or_else(|| "something is missing".to_owned()))
        }
        // What is missing is missed by name.
        Err(error @ (StoreError::Corrupt { .. } | StoreError::TooNew { .. } | StoreError::NotFound { .. })) => {
            Outcome::Detected(error.to_string().chars().take(25).collect())
        }
        Err(StoreError::Invalid { detail, .. }) => Outcome::Detected(detail),
        Err(error) => panic!("{error}"),
    }
}

/// Files that Piton doesn't believe: damage to them changes nothing. What the state of a pack said is found out again from
/// the logs.
fn is_for_people(file: &Path) -> bool {
    let is_state = file.extension().is_some_and(|extension| extension == "state");
    is_state || file.ends_with("state.json") || file.ends_with("history.jsonl")
}

#[test]
fn every_damaged_byte_of_a_folder_store_is_found() {
    let scratch = Scratch::in_memory();
    build(scratch.path());
    let expected = read(scratch.path()).unwrap();
    let mut sweeps = vec![("flipped", Sweep::default())];
    let every = by_level(17, 5, 1);
    for change in [Change::Zero, Change::SwapWithNext, Change::Drop, Change::Cut] {
        sweeps.push(("changed", Sweep { stride: every, ..Sweep::every_byte(&[change]) }));
    }
    for (name, sweep) in sweeps {
        let tally = sweep.run(scratch.path(), |folder, mutation| match outcome(folder, &expected) {
            Outcome::Same if !is_for_people(&mutation.file) => Outcome::Silent("it was not noticed".to_owned()),
            other => other,
        });
        println!("folder store, {name}: {tally}");
        assert_eq!((tally.lost, tally.silent), (0, 0), "{tally}");
        assert!(tally.detected > 300, "{tally}");
    }
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    found.insert(path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(path).unwrap());
                }
            }
        }
    }
    found
}

/// A file in another's place, and a file that isn't there. That the newest entry was there can't be known.
#[test]
fn files_in_each_others_place_are_found() {
    let scratch = Scratch::in_memory();
    let start = scratch.join("start");
    build(&start);
    let expected = read(&start).unwrap();
    let all = files(&start);
    let names: Vec<_> = all.keys().filter(|name| !is_for_people(name) && !all[*name].is_empty()).cloned().collect();
    let (mut swaps, mut removals) = (0, 0);
    let copy = scratch.join("copy");
    let anew = || {
        drop(std::fs::remove_dir_all(&copy));
        std::fs::create_dir(&copy).unwrap();
        copy_tree(&start, &copy).unwrap();
    };
    for one in &names {
        for other in names.iter().filter(|other| *other > one && all[*other] != all[one]) {
            anew();
            std::fs::write(copy.join(one), &all[other]).unwrap();
            std::fs::write(copy.join(other), &all[one]).unwrap();
            match outcome(&copy, &expected) {
                Outcome::Detected(_) => swaps += 1,
                outcome => panic!("{} and {}: {outcome:?}", one.display(), other.display()),
            }
        }
        anew();
        std::fs::remove_file(copy.join(one)).unwrap();
        let name = one.to_str().unwrap();
        match outcome(&copy, &expected) {
            Outcome::Detected(_) => removals += 1,
            outcome => {
                // Like a log that ended there, a mark that was never made, or a lock, which is made again.
                let newest = name.ends_with("0000000004.json") || name.ends_with("runs/~two/entries/0000000000.json");
                let mark = name.starts_with("notes");
                assert!(newest || mark, "{name}: {outcome:?}");
            }
        }
    }
    println!("folder store: {swaps} swapped pairs and {removals} missing files found");
    assert!(swaps > 20 && removals > 3);
}

/// A thousand damages of every kind, by seed.
#[test]
fn seeded_damage_to_a_folder_store_is_found() {
    let scratch = Scratch::in_memory();
    let start = scratch.join("start");
    build(&start);
    let expected = read(&start).unwrap();
    let all: Vec<_> =
        files(&start).into_iter().filter(|(name, bytes)| !is_for_people(name) && !bytes.is_empty()).collect();
    let copy = scratch.join("copy");
    copy_tree(&start, &{
        std::fs::create_dir(&copy).unwrap();
        copy.clone()
    })
    .unwrap();
    let (mut found, rounds) = (0, by_level(200, 1000, 10_000));
    for seed in 0..rounds {
        let random = SeededRandom::new(SEED + seed);
        let (name, bytes) = &all[random.below(all.len())];
        let mut damaged = bytes.clone();
        let (at, length) = (random.below(bytes.len()), 1 + random.below(64));
        let end = (at + length).min(bytes.len());
        match random.below(6) {
            0 => damaged[at] ^= 1 << random.below(8),
            1 => damaged[at..end].fill(0),
            2 => damaged.truncate(at),
            3 => drop(damaged.drain(at..end)),
            4 => damaged.extend_from_slice(&bytes[at..end]),
            _ => damaged[at..end].reverse(),
        }
        if damaged == *bytes {
            continue;
        }
        std::fs::write(copy.join(name), &damaged).unwrap();
        match outcome(&copy, &expected) {
            Outcome::Detected(_) => found += 1,
            outcome => panic!("seed {seed}: {}: {outcome:?}", name.display()),
        }
        std::fs::write(copy.join(name), bytes).unwrap();
    }
    println!("folder store: {found} of {rounds} seeded damages found, the others changed nothing");
    assert!(found * 10 > rounds * 9);
}

/// Of a run with a missing entry, what lies before it and behind it can be read; a read across it fails.
#[test]
fn a_missing_entry_takes_no_other_with_it() {
    let scratch = Scratch::in_memory();
    let store = open(scratch.path());
    let mut line = Line::new("one");
    block_on(line.grow(&*store, 10));
    let run = line.run.clone();
    std::fs::remove_file(scratch.path().join("runs/one/entries/0000000004.json")).unwrap();
    block_on(async {
        let read = async |from: u32, to: u32, limit: usize, newest_first: bool| {
            let span = Span { from: Seq(from), to: Seq(to), limit, newest_first, ..Span::ALL };
            let records = store.read(&run, span).await?;
            Ok::<_, StoreError>(records.iter().map(|record| record.seq.0).collect::<Vec<_>>())
        };
        assert_eq!(read(0, 3, 99, false).await.unwrap(), [0, 1, 2, 3]);
        assert_eq!(read(5, u32::MAX, 99, false).await.unwrap(), [5, 6, 7, 8, 9]);
        assert_eq!(read(0, u32::MAX, 3, false).await.unwrap(), [0, 1, 2]);
        assert_eq!(read(0, u32::MAX, 5, true).await.unwrap(), [9, 8, 7, 6, 5]);
        for (from, to, limit, newest_first) in [
            (0, u32::MAX, 99, false),
            (0, u32::MAX, 5, false),
            (0, u32::MAX, 6, true),
            (4, 4, 1, false),
            (3, 5, 9, true),
        ] {
            let across = read(from, to, limit, newest_first).await;
            let Err(StoreError::Corrupt { what, .. }) = &across else { panic!("{across:?}") };
            assert_eq!(what, "entry 4 of run one");
        }
        let part = |text: &str| Bytes::from(text.repeat(9));
        let info = SegmentInfo { first: Seq(0), last: Seq(7) };
        let segment = Segment { info, entries: part("e"), index: part("i"), nodes: part("n") };
        let folded = store.fold(&run, segment).await;
        assert!(matches!(folded, Err(StoreError::Corrupt { .. })), "{folded:?}");
        let defects = store.inspect().await.unwrap();
        assert_eq!(defects.iter().map(|defect| defect.what.as_str()).collect::<Vec<_>>(), ["entry 4 of run one"]);
        line.append(&*store).await.unwrap();
        assert_eq!(read(5, u32::MAX, 99, false).await.unwrap(), [5, 6, 7, 8, 9, 10]);
    });
}

/// What the user put beside the runs is no run, and no reader or writer minds it.
#[test]
fn a_stray_file_among_the_runs_blocks_nothing() {
    let scratch = Scratch::in_memory();
    build(scratch.path());
    let expected = read(scratch.path()).unwrap();
    std::fs::write(scratch.path().join("runs/notes.txt"), "mine").unwrap();
    std::fs::create_dir(scratch.path().join("runs/empty")).unwrap();
    std::os::unix::fs::symlink("one", scratch.path().join("runs/link")).unwrap();
    assert_eq!(read(scratch.path()).unwrap(), expected);
    let store = open(scratch.path());
    block_on(async {
        assert_eq!(store.run_ids().await.unwrap(), [id("Two"), id("one")]);
        assert_eq!(store.usage().await.unwrap().runs, 2);
        assert_eq!(store.inspect().await.unwrap(), []);
    });
    assert_eq!(std::fs::read(scratch.path().join("runs/notes.txt")).unwrap(), b"mine");
}
