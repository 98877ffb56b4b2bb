//! Promise 2: what is acknowledged survives a power cut, with unsynced writes lost, torn or reordered.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use piton_testing::SeededRandom;
use piton_testing::power::{Names, Recording};
use piton_testing::scratch::Scratch;

use super::saver::{FOLDED_AT, How, LARGE_AT, Said, kind, verify};
use super::{SEED, by_level};

fn record(how: How) -> Recording {
    let scratch = Scratch::in_memory();
    let folder = scratch.join("store");
    std::fs::create_dir(&folder).unwrap();
    let recording = Recording::record(&how.command(&folder), &folder);
    assert!(Said::new(&recording.finished.lines()).done.is_some(), "{:?}", recording.finished);
    recording
}

/// Moments at which a durable commit is behind a transaction that waited for no sync (a staged pack, a fold):
/// from the acknowledgement of the second back to the beginning of its writes, each `seeds` times.
fn behind_unsynced(recording: &Recording, seeds: usize) -> Vec<(usize, u64)> {
    let random = SeededRandom::new(SEED);
    let said = |cut| Said::new(&recording.materialise(cut, 0).acknowledged).newest();
    let mut cuts = Vec::new();
    for seq in [LARGE_AT, FOLDED_AT + 1] {
        let acknowledged = (0..=recording.steps()).find(|cut| said(*cut) >= Some(seq)).unwrap();
        for cut in acknowledged - 12..=acknowledged {
            cuts.extend((0..seeds).map(|_| (cut, random.next_u64())));
        }
    }
    cuts
}

/// After a power cut the machine is started again: what the store noted is from another boot.
fn reboot(folder: &Path) {
    let path = folder.join("store.db-lock");
    if let Ok(mut mark) = std::fs::read(&path) {
        mark.iter_mut().take(16).for_each(|byte| *byte ^= 0xff);
        std::fs::write(path, mark).unwrap();
    }
}

/// Cuts the power; what went wrong, by kind of error, with one example of each.
fn cut(recording: &Recording, cuts: &[(usize, u64)]) -> BTreeMap<String, (usize, String)> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((cut, seed)) = cuts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let image = recording.materialise(*cut, *seed);
                    let said = Said::new(&image.acknowledged);
                    reboot(image.dir.path());
                    if let Err(error) = verify(image.dir.path(), &said) {
                        let example = format!("cut {cut}, seed {seed}, after {}: {error}", image.last);
                        wrong.lock().unwrap().entry(kind(&error)).or_insert((0, example)).0 += 1;
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

#[test]
fn power_cuts() {
    let count = by_level(40, 200, 2000);
    let mut recording = record(How::Well);
    for names in [Names::DirectorySync, Names::Journal] {
        recording = recording.with_names(names);
        let wrong = cut(&recording, &recording.cuts(count / 2, SEED));
        println!(
            "{names:?}: {} cuts over {} steps, {} syncs: {wrong:?}",
            count / 2,
            recording.steps(),
            recording.syncs()
        );
        assert!(wrong.is_empty(), "{names:?}: {wrong:#?}");
    }
}

/// The same with relaxed saves: what the durable one behind them acknowledges is there.
#[test]
fn power_cuts_after_bursts() {
    let recording = record(How::Burst);
    let wrong = cut(&recording, &recording.cuts(by_level(30, 100, 1000), SEED));
    println!("bursts: {} steps, {} syncs: {wrong:?}", recording.steps(), recording.syncs());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn power_cuts_behind_a_staged_pack_or_a_fold() {
    let recording = record(How::Well);
    let cuts = behind_unsynced(&recording, by_level(4, 20, 200));
    let wrong = cut(&recording, &cuts);
    println!("behind a staged pack or a fold: {} cuts: {wrong:?}", cuts.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The negative control: relaxed saves that are acknowledged as if they were durable are caught.
#[test]
fn power_cuts_find_what_is_not_synced() {
    let recording = record(How::Relaxed);
    let wrong = cut(&recording, &recording.cuts(by_level(20, 60, 500), SEED));
    println!("relaxed: {} steps, {} syncs: {wrong:?}", recording.steps(), recording.syncs());
    assert!(wrong.get("NotFound").is_some_and(|(lost, _)| *lost > 0), "the harness would not have noticed: {wrong:?}");
    assert_eq!(wrong.keys().collect::<Vec<_>>(), ["NotFound"], "the newest commits may be gone, but the store opens");
}

/// What a power cut can't have done is damage after one too: a frame that was synced and doesn't fit. And the
/// other way round: unless the machine was started again, a frame that wasn't synced counts as well.
#[test]
fn synced_frames_are_held_to_after_a_power_cut() {
    let recording = record(How::Well);
    let whole = recording.materialise(recording.steps(), SEED);
    let log = |folder: &Path| folder.join("store.db-wal");
    let Some(cut) = (0..recording.steps()).rev().find(|cut| {
        let image = recording.materialise(*cut, SEED);
        std::fs::metadata(log(image.dir.path())).is_ok_and(|data| data.len() > 10 * 4120)
    }) else {
        panic!("no log of some length in {} steps; {:?}", recording.steps(), whole.last)
    };
    let (mut found, mut flips) = (0, 0);
    for frame in 0..8 {
        for rebooted in [false, true] {
            let image = recording.materialise(cut, SEED);
            let path = log(image.dir.path());
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[32 + frame * 4120 + 100] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            if rebooted {
                reboot(image.dir.path());
            }
            flips += 1;
            let opened = verify(image.dir.path(), &Said::new(&image.acknowledged));
            found += usize::from(opened.is_err_and(|error| ["DamagedWal", "Corrupt"].contains(&kind(&error).as_str())));
        }
    }
    assert_eq!(found, flips);
}
