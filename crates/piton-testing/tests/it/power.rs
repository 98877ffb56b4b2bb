//! Power cuts.

use std::fs;
use std::process::Command;

use piton_testing::power::{Names, Recording};
use piton_testing::process::run;
use piton_testing::scratch::Scratch;

use crate::journal::Flaw;
use crate::{verdict, victim};

/// Cuts the power so often at each moment of a run; returns what broke.
fn cut_everywhere(flaw: Flaw, names: Names, times: usize) -> Vec<String> {
    let dir = Scratch::new();
    let recording = Recording::record(&victim(flaw, dir.path(), 4), dir.path()).with_names(names);
    assert!(recording.finished.success(), "{:?}", recording.finished);
    let cuts = recording.cuts((recording.steps() + 1) * times, 1);
    let mut broken = Vec::new();
    for &(cut, seed) in &cuts {
        let image = recording.materialise(cut, seed);
        if let Err(what) = verdict(image.dir.path(), flaw, &image.acknowledged) {
            broken.push(format!("cut {cut}, seed {seed}, after {}: {what}", image.last));
        }
    }
    let (steps, syncs) = (recording.steps(), recording.syncs());
    println!("{flaw:?}, {names:?}: {steps} steps, {syncs} syncs, {} cuts, {} broken", cuts.len(), broken.len());
    broken
}

#[test]
fn the_good_journal_survives_every_power_cut() {
    assert_eq!(cut_everywhere(Flaw::None, Names::DirectorySync, 40), [""; 0]);
    assert_eq!(cut_everywhere(Flaw::None, Names::Journal, 40), [""; 0]);
}

#[test]
fn power_cuts_find_a_missing_sync() {
    assert!(!cut_everywhere(Flaw::NoFsync, Names::DirectorySync, 10).is_empty());
    assert!(!cut_everywhere(Flaw::NoFsync, Names::Journal, 10).is_empty());
}

/// On ext4 the later syncs of the file happen to save its name; on other disks they need not.
#[test]
fn power_cuts_find_a_missing_sync_of_the_folder() {
    assert!(!cut_everywhere(Flaw::NoDirsync, Names::DirectorySync, 10).is_empty());
    assert_eq!(cut_everywhere(Flaw::NoDirsync, Names::Journal, 40), [""; 0]);
}

#[test]
fn power_cuts_find_a_missing_checksum() {
    assert!(!cut_everywhere(Flaw::NoChecksum, Names::DirectorySync, 10).is_empty());
}

#[test]
fn power_cuts_find_an_early_acknowledgement() {
    assert!(!cut_everywhere(Flaw::EarlyAck, Names::DirectorySync, 10).is_empty());
}

#[test]
fn a_run_on_an_old_journal_starts_from_what_was_there() {
    let dir = Scratch::new();
    assert!(run(&mut victim(Flaw::None, dir.path(), 2)).success());
    let recording = Recording::record(&victim(Flaw::None, dir.path(), 2), dir.path());
    for (cut, seed) in recording.cuts(100, 2) {
        let image = recording.materialise(cut, seed);
        let mut acknowledged = vec!["ack 0".to_owned(), "ack 1".to_owned()];
        acknowledged.extend(image.acknowledged);
        assert_eq!(verdict(image.dir.path(), Flaw::None, &acknowledged), Ok(()), "cut {cut}, seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let dir = Scratch::new();
    let recording = Recording::record(&victim(Flaw::NoFsync, dir.path(), 4), dir.path());
    let bytes = |cut, seed| fs::read(recording.materialise(cut, seed).dir.join("journal")).ok();
    let all = recording.steps();
    assert!((0..20).all(|seed| bytes(all, seed) == bytes(all, seed)));
    assert!((1..20).any(|seed| bytes(all, seed) != bytes(all, 0)));
}

/// Names, links, appends, positions, forks and folders, as a shell does them: when all is synced, the
/// image is the folder itself.
#[test]
fn what_is_synced_is_there_to_the_byte() {
    let dir = Scratch::new();
    fs::write(dir.join("old"), "old\n").unwrap();
    let script = "echo one > a; echo two >> a; ln a b; mkdir d; mv a d/c; (echo three; echo four) >> b; \
                  echo x > back; rm back; echo y > back; mkdir e; rmdir e; ln -s b s; echo new > t; mv t old; \
                  printf 12345 > p; truncate -s 3 p; mv d d2; echo five > d2/f; exec 7<>p; echo Z >&7; \
                  cat <&7 >/dev/null; echo Y >&7; sync; echo done";
    let mut command = Command::new("sh");
    command.arg("-ec").arg(script).current_dir(dir.path());
    let recording = Recording::record(&command, dir.path());
    assert!(recording.finished.success(), "{:?}", recording.finished);
    for seed in 0..20 {
        let image = recording.materialise(recording.steps(), seed);
        assert_eq!(image.acknowledged.last().map(String::as_str), Some("done"));
        for file in ["b", "back", "d2/c", "d2/f", "s", "old", "p"] {
            assert_eq!(fs::read(image.dir.join(file)).unwrap(), fs::read(dir.join(file)).unwrap(), "{file}");
        }
        let names = |dir: &Scratch| {
            let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&image.dir), names(&dir));
        assert!(fs::symlink_metadata(image.dir.join("s")).unwrap().is_symlink());
    }
}

/// The classic: a file renamed into place before its content was synced.
#[test]
fn a_rename_may_outrun_the_data() {
    let dir = Scratch::new();
    fs::write(dir.join("file"), "before").unwrap();
    let mut command = Command::new("sh");
    command.arg("-ec").arg("printf after > new; mv new file; echo renamed").current_dir(dir.path());
    let recording = Recording::record(&command, dir.path());
    let seen: Vec<_> = (0..200)
        .map(|seed| fs::read_to_string(recording.materialise(recording.steps(), seed).dir.join("file")).unwrap())
        .collect();
    for content in ["before", "after", ""] {
        assert!(seen.iter().any(|seen| seen == content), "{content:?} never came up");
    }
    assert!(seen.iter().all(|seen| ["before", "after", "", "\0\0\0\0\0"].contains(&seen.as_str())), "{seen:?}");
}
