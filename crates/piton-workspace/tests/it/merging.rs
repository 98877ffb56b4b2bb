//! Merging texts, held against `git merge-file`. W11.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use imara_diff::{Algorithm, Diff, InternedInput};
use piton_testing::SeededRandom;
use piton_testing::scratch::Scratch;
use piton_types::Random as _;
use piton_workspace::{ConflictStyle, Favour, MergeOptions, Unmergeable, has_markers, merge};

/// Small numbers from a seed.
pub(crate) struct Dice(SeededRandom);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    pub(crate) fn below(&self, end: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % end.max(1) as u64).unwrap()
    }
}

/// Three versions: lines that repeat more or less often, and edits that meet more or less often.
fn case(seed: u64) -> [Vec<u8>; 3] {
    let dice = Dice::new(seed);
    let words = [3, 8, 40, 1000][dice.below(4)];
    let line = |dice: &Dice| match dice.below(12) {
        0 => String::new(),
        1 => "}".to_owned(),
        2 => "    return;".to_owned(),
        3 => "\u{fc}ber \u{1f40d}".to_owned(),
        _ => format!("{}line {}", " ".repeat(4 * dice.below(3)), dice.below(words)),
    };
    let base: Vec<String> = (0..dice.below(60)).map(|_| line(&dice)).collect();
    let edited = |dice: &Dice| {
        let mut lines = base.clone();
        for _ in 0..dice.below(6) {
            let at = dice.below(lines.len() + 1);
            let until = (at + dice.below(5)).min(lines.len());
            let new: Vec<String> = (0..dice.below(4)).map(|_| line(dice)).collect();
            lines.splice(at..until, new);
        }
        lines
    };
    let (mut ours, theirs) = (edited(&dice), edited(&dice));
    if dice.below(3) == 0 && !theirs.is_empty() {
        // Both did the same somewhere.
        let at = dice.below(theirs.len());
        let at_ours = at.min(ours.len());
        ours.splice(at_ours..at_ours, theirs[at..(at + 3).min(theirs.len())].to_vec());
    }
    let ends = dice.below(6);
    [base, ours, theirs].map(|lines| {
        let mut text = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            text.extend_from_slice(line.as_bytes());
            let crlf = ends == 0 || ends == 1 && dice.below(2) == 0;
            let last = number + 1 == lines.len();
            if !(last && dice.below(4) == 0) {
                text.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
            }
            if dice.below(200) == 0 {
                text.extend_from_slice(b"\xff\xfe invalid\n");
            }
        }
        text
    })
}

struct Git {
    scratch: Scratch,
}

impl Git {
    fn new() -> Self {
        Self { scratch: Scratch::in_memory() }
    }

    /// Whether git finds the same lines changed from the base to each side, and between the sides.
    fn compares_alike(&self, [base, ours, theirs]: &[Vec<u8>; 3]) -> bool {
        [("base", "ours", base, ours), ("base", "theirs", base, theirs)].iter().all(|(from, to, before, after)| {
            let output = Command::new("git")
                .args(["diff", "--no-index", "-U0", "--no-indent-heuristic", "--diff-algorithm=myers", "-a", from, to])
                .current_dir(self.scratch.path())
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let hunks: Vec<String> = text
                .lines()
                .filter_map(|line| Some(line.strip_prefix("@@ ")?.split(" @@").next()?.to_owned()))
                .collect();
            hunks == compared(before, after)
        })
    }

    /// What git makes of it: its exit code, and the text.
    fn merge(&self, [base, ours, theirs]: &[Vec<u8>; 3], options: &[&str]) -> (i32, Vec<u8>) {
        for (name, text) in [("base", base), ("ours", ours), ("theirs", theirs)] {
            std::fs::write(self.scratch.join(name), text).unwrap();
        }
        let output = Command::new("git")
            .args(["merge-file", "-p"])
            .args(options)
            .args(["ours", "base", "theirs"])
            .current_dir(self.scratch.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        (output.status.code().unwrap(), output.stdout)
    }
}

/// The places that differ, as imara-diff finds them and git writes them.
fn compared(before: &[u8], after: &[u8]) -> Vec<String> {
    let lines = |text: &'static [u8]| text.split_inclusive(|byte| *byte == b'\n');
    // Leaked: the tests compare a few kilobytes this way.
    let (before, after): (&'static [u8], &'static [u8]) = (before.to_vec().leak(), after.to_vec().leak());
    let mut input = InternedInput::default();
    input.update_before(lines(before));
    input.update_after(lines(after));
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_no_heuristic(&input);
    let side = |range: std::ops::Range<u32>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    };
    diff.hunks().map(|hunk| format!("-{} +{}", side(hunk.before), side(hunk.after))).collect()
}

const STYLES: [(&[&str], ConflictStyle, Option<Favour>); 6] = [
    (&[], ConflictStyle::Merge, None),
    (&["--diff3"], ConflictStyle::Diff3, None),
    (&["--zdiff3"], ConflictStyle::Zdiff3, None),
    (&["--ours"], ConflictStyle::Merge, Some(Favour::Ours)),
    (&["--theirs"], ConflictStyle::Merge, Some(Favour::Theirs)),
    (&["--union"], ConflictStyle::Merge, Some(Favour::Union)),
];

/// W11: our merge is git's, to the byte, with the same number of conflicts, in all styles. The only differences (15
/// of the first 1,200) come from texts in which a few lines repeat so often that imara-diff and git, which both
/// guess then, take different ones for the same: where the two comparisons agree, so do the merges.
#[test]
fn merges_are_those_of_git() {
    let seeds = if full() { 20_000 } else { 1_200 };
    let git = Git::new();
    let (mut clean, mut conflicts, mut alike, mut different, mut unexplained) = (0, 0, 0, 0, Vec::new());
    for seed in 0..seeds {
        let case = case(seed);
        let (flags, style, favour) = STYLES[usize::try_from(seed % 8).unwrap().saturating_sub(2)];
        let (code, theirs) = git.merge(&case, flags);
        let options = MergeOptions { style, favour, ..MergeOptions::default() };
        let ours = merge(&case[0], &case[1], &case[2], &options).unwrap();
        if ours.conflicts == 0 {
            clean += 1;
        } else {
            conflicts += 1;
        }
        if seed < 100 {
            alike += usize::from(git.compares_alike(&case));
        }
        if (code, &theirs) != (i32::try_from(ours.conflicts).unwrap(), &ours.text) {
            if git.compares_alike(&case) {
                unexplained.push((seed, flags));
            }
            different += 1;
        }
    }
    println!("{seeds} merges, {clean} clean, {conflicts} with conflicts, {different} differ from git's");
    assert!(clean > seeds / 10 && conflicts > seeds / 10, "{clean} clean, {conflicts} with conflicts: no fair sample");
    assert!(alike > 80, "only {alike} of 100 are compared as git does: that would explain anything");
    assert!(unexplained.is_empty(), "{} of {different} of {seeds}: {unexplained:?}", unexplained.len());
    assert!(different * 50 < seeds, "{different} of {seeds}");
}

/// The end of the history whose changes are taken back. It doesn't move on with the repository: how often two ways of
/// comparing guess differently depends on the texts, and the same question should have the same answer each time.
const HISTORY: &str = "e92ba35f2209a736a7322f56d6c20fc7b3e2127b";

/// The versions of every file in the history of this repository, oldest first.
fn histories() -> Vec<Vec<Vec<u8>>> {
    let git = |arguments: &[&str], input: &[u8]| -> Vec<u8> {
        let mut child = Command::new("git")
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut asks = child.stdin.take().unwrap();
        let input = input.to_vec();
        // Beside it, since it answers before it has heard everything.
        let asking = std::thread::spawn(move || asks.write_all(&input).unwrap());
        let output = child.wait_with_output().unwrap();
        asking.join().unwrap();
        assert!(output.status.success(), "git {arguments:?}");
        output.stdout
    };
    let log = ["log", "--raw", "--no-abbrev", "--no-renames", "--no-merges", "--format=", "--reverse", HISTORY];
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&git(&log, b"")).lines() {
        let Some((what, path)) = line.split_once('\t') else { continue };
        let new = what.split(' ').nth(3).unwrap();
        let of_path = versions.entry(path.to_owned()).or_default();
        if new.bytes().any(|digit| digit != b'0') && of_path.last().is_none_or(|last| last != new) {
            of_path.push(new.to_owned());
        }
    }
    let ids: BTreeSet<&String> = versions.values().flatten().collect();
    let asked: String = ids.iter().map(|id| format!("{id}\n")).collect();
    let answer = git(&["cat-file", "--batch"], asked.as_bytes());
    let (mut blobs, mut rest) = (BTreeMap::new(), &answer[..]);
    for id in &ids {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
        let size: usize = String::from_utf8_lossy(&rest[..end]).rsplit(' ').next().unwrap().parse().unwrap();
        blobs.insert(*id, rest[end + 1..end + 1 + size].to_vec());
        rest = &rest[end + size + 2..];
    }
    versions.values().map(|ids| ids.iter().map(|id| blobs[id].clone()).collect()).collect()
}

/// W11, on a real history: every change of every file of this repository, taken back from a later version of the file,
/// as `git revert` would. The merges are git's, to the byte, except where the two compare differently, as above.
#[test]
fn reverts_in_a_real_history_are_those_of_git() {
    let mut cases = Vec::new();
    for versions in histories() {
        for at in 1..versions.len() {
            for later in at + 1..versions.len() {
                cases.push([versions[at].clone(), versions[later].clone(), versions[at - 1].clone()]);
            }
        }
    }
    let all = cases.len();
    assert!(all >= 1_000, "{all} cases are too few: is this the whole history?");
    // Far apart, and the same each time.
    let step = if full() { 1 } else { all / 1_000 };
    let git = Git::new();
    let (mut conflicts, mut different, mut unexplained) = (0, 0, Vec::new());
    let taken: Vec<_> = cases.into_iter().enumerate().step_by(step).collect();
    for (number, case) in &taken {
        let Ok(ours) = merge(&case[0], &case[1], &case[2], &MergeOptions::default()) else { continue };
        conflicts += usize::from(ours.conflicts > 0);
        let (code, theirs) = git.merge(case, &[]);
        // git counts no further.
        if (code, &theirs) != (i32::try_from(ours.conflicts.min(127)).unwrap(), &ours.text) {
            different += 1;
            if git.compares_alike(case) {
                unexplained.push(*number);
            }
        }
    }
    let count = taken.len();
    println!("{count} of {all} reverts, {conflicts} with conflicts, {different} differ from git's");
    assert!(conflicts > count / 20 && conflicts < count, "{conflicts} of {count} with conflicts: no fair sample");
    assert!(unexplained.is_empty(), "{unexplained:?}");
    assert!(different * 20 < count, "{different} of {count}");
}

/// Whether the long campaigns are wanted.
pub(crate) fn full() -> bool {
    std::env::var("PITON_TEST").as_deref() == Ok("full")
}

#[test]
fn what_is_no_text_is_refused() {
    let options = MergeOptions::default();
    assert_eq!(merge(b"a\0", b"b", b"c", &options), Err(Unmergeable::Binary));
    assert_eq!(merge(b"a", b"b", b"c\0", &options), Err(Unmergeable::Binary));
    // Unless there is nothing to decide, which git would still refuse for a binary file.
    assert!(merge(b"", b"", b"", &options).unwrap().text.is_empty());
}

/// Markers are told from underlines and quotations.
#[test]
fn markers_are_recognised() {
    assert!(has_markers(b"a\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n"));
    assert!(has_markers(b">>>>>>> theirs"));
    assert!(!has_markers(b"Title\n=======\n>>> quoted\n<<<<<<<< eight\n"));
}

/// Lines that are all alike, many of them, everything changed: still fast enough to end.
#[test]
fn hostile_texts_end() {
    let many = |line: &str, count: usize| line.repeat(count).into_bytes();
    let base = many("a\n", 40_000);
    let ours = many("b\na\n", 30_000);
    let theirs: Vec<u8> = (0..40_000).flat_map(|n| format!("{}\n", n % 7).into_bytes()).collect();
    let merged = merge(&base, &ours, &theirs, &MergeOptions::default()).unwrap();
    assert!(merged.conflicts >= 1);
    let one_line = vec![b'x'; 3 << 20];
    let merged =
        merge(&one_line, &[&one_line[..], b"y"].concat(), &[b"z", &one_line[..]].concat(), &MergeOptions::default());
    assert_eq!(merged.unwrap().conflicts, 1);
}
