//! Other programs write while Piton saves, restores and takes back; and several Pitons work on one folder. A write that was
//! complete is afterwards in a file, in a checkpoint or in a folder that was named; of several restores one is the last.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_testing::SeededRandom;
use piton_testing::process::Running;
use serde_json::Value as Json;

use super::player::{PATIENCE, Player, is_one_of, sound};
use super::{Counts, finds, play};
use crate::files::look;

#[test]
fn races() {
    play("races", (1, 2), |random, counts| {
        writers(random, counts, None);
        rivals(random, counts);
    });
}

/// A Piton that restores by copying the files of the checkpoint over those of the folder.
#[test]
fn races_find_a_restore_that_overwrites() {
    finds(10, &["is nowhere"], |random, counts| {
        writers(random, counts, Some("sleep 0.02; cp -a ../target/. .; rm -f new-*; sleep 0.02"));
    });
}

/// How many files there are, and how many writers share them.
const FILES: usize = 32;
const WRITERS: usize = 4;
/// The first file is large: what takes long to read is long in danger.
const LARGE: usize = 4 << 20;

/// One complete write of a whole file by another program.
struct Write {
    path: PathBuf,
    word: String,
    after: Duration,
    in_place: bool,
    length: usize,
}

impl Write {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\n", self.word).into_bytes();
        bytes.resize(bytes.len().max(self.length), b'.');
        bytes
    }

    fn done(&self, aside: &Path) {
        if self.in_place {
            let file = std::fs::File::options().write(true).create(true).truncate(true).open(&self.path);
            file.unwrap().write_all(&self.bytes()).unwrap();
        } else {
            let whole = aside.join(&self.word);
            std::fs::write(&whole, self.bytes()).unwrap();
            std::fs::rename(whole, &self.path).unwrap();
        }
    }
}

/// A word that stands in one write alone.
fn word(random: &SeededRandom) -> String {
    format!("w{:016x}", random.next_u64())
}

fn writers(random: &SeededRandom, counts: &Counts, naive: Option<&str>) {
    let player = Player::new(random);
    let (work, aside) = (player.work(), player.world().root().join("aside"));
    std::fs::create_dir(&aside).unwrap();
    let path = |number: usize| work.join(format!("{}{number}", ["", "sub/", "sub/deep/"][number % 3]));
    let length = |number: usize| if number == 0 { LARGE } else { [0, 100, 40_000][number % 3] };
    std::fs::create_dir_all(work.join("sub/deep")).unwrap();
    let fill = || {
        for number in 0..FILES {
            let write = Write {
                path: path(number),
                word: word(random),
                after: Duration::ZERO,
                in_place: true,
                length: length(number),
            };
            write.done(&aside);
        }
        player.save()
    };
    let first = fill();
    let copied = std::process::Command::new("cp").arg("-a").arg(&work).arg(work.with_file_name("target")).status();
    assert!(copied.unwrap().success());
    fill();
    let restore = ["restore", &first, "--exact", "--yes"];
    let conflict = "--conflict=checkpoint";
    let verbs: [&[&str]; 4] = [&restore, &["undo", "--yes", conflict], &["redo", "--yes", conflict], &["save"]];
    let mut seen = Seen::default();
    for (turn, verb) in verbs.into_iter().cycle().take(8).enumerate() {
        // Early writes make a plan void, so most come in a burst at one moment of the verb. Each file is written once, so
        // that no write of ours takes the place of another one of ours.
        let (begin, burst) = (player.moment(verb[0]), [2_000, 10_000, 60_000][random.below(3)]);
        let mut files: Vec<usize> = (0..FILES).filter(|_| random.one_in(3)).collect();
        files.insert(0, 0);
        files.dedup();
        let writes: Vec<Write> = files
            .into_iter()
            .map(|number| {
                let is_new = number > 0 && random.one_in(6);
                let name = format!("new-{turn}-{number}");
                Write {
                    path: if is_new { work.join(name) } else { path(number) },
                    word: word(random),
                    after: begin + Duration::from_micros(random.below(burst).try_into().unwrap()),
                    in_place: random.one_in(2),
                    length: length(number),
                }
            })
            .collect();
        let mut command = match naive {
            Some(line) => player.world().program("sh", ["-c", line]),
            None => player.command(verb),
        };
        let running = Running::spawn(&mut command);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (writes, aside) = (&writes, &aside);
                scope.spawn(move || {
                    let mut own: Vec<_> = writes.iter().skip(writer).step_by(WRITERS).collect();
                    own.sort_by_key(|write| write.after);
                    let begin = std::time::Instant::now();
                    for write in own {
                        std::thread::sleep(write.after.saturating_sub(begin.elapsed()));
                        write.done(aside);
                    }
                });
            }
        });
        let said = running.wait(PATIENCE);
        sound(&command, &said);
        counts.add(format!("{} beside writers, exit {:?}", verb[0], said.ending));
        found(&player, &writes, &mut seen, counts);
        // So that there is something to take back, and again.
        if naive.is_none() && !said.success() {
            player.piton(verb);
        }
    }
    player.does(["check", "--deep"]);
}

/// What the checkpoints are known to hold.
#[derive(Default)]
struct Seen {
    ids: BTreeSet<String>,
    words: BTreeSet<String>,
}

/// Every write is somewhere: in a file of the folder, what was recovered included, or in a checkpoint.
fn found(player: &Player<'_>, writes: &[Write], seen: &mut Seen, counts: &Counts) {
    let words = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        let is_word = |word: &&str| word.len() == 17 && word.starts_with('w');
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_word).map(str::to_owned);
        words.collect::<BTreeSet<_>>()
    };
    let mut there = BTreeSet::new();
    let mut recovered = BTreeSet::new();
    for (path, (_, bytes)) in look(&player.work()) {
        let is_kept = path.to_string_lossy().starts_with("piton-recovered-");
        if is_kept { &mut recovered } else { &mut there }.extend(words(&bytes));
    }
    let missing: Vec<_> = writes.iter().filter(|write| !there.contains(&write.word)).collect();
    let (kept, missing): (Vec<_>, Vec<_>) = missing.into_iter().partition(|write| recovered.contains(&write.word));
    counts.add_many("writes in their file", writes.len() - kept.len() - missing.len());
    counts.add_many("writes in a folder that was named", kept.len());
    if missing.is_empty() {
        return;
    }
    let log = player.does(["log", "--checkpoints", "--json", "-n", "1000"]).stdout;
    let ids: Vec<String> = log
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    for pair in ids.windows(2).filter(|pair| !seen.ids.contains(&pair[0])) {
        seen.words.extend(words(player.does(["diff", &pair[1], &pair[0]]).stdout.as_bytes()));
    }
    seen.ids.extend(ids);
    for write in &missing {
        let place = write.path.display();
        assert!(
            seen.words.contains(&write.word),
            "the write {} of {place} is nowhere (in place: {})",
            write.word,
            write.in_place
        );
    }
    counts.add_many("writes in a checkpoint", missing.len());
}

/// Two Pitons at once. What restores is exact; what looks finds no damage.
fn rivals(random: &SeededRandom, counts: &Counts) {
    let player = Player::new(random);
    let mut saved = Vec::new();
    for _ in 0..2 {
        player.scribble();
        player.world().write("always", &word(random));
        saved.push((player.save(), player.tree()));
    }
    for _ in 0..4 {
        let restores = [0, 1].map(|which| vec!["restore", saved[which].0.as_str(), "--exact", "--yes"]);
        // By their names: once the older one is restored, the folder's line has none before it.
        let diff = format!("diff {} {}", saved[0].0, saved[1].0);
        let beside = ["save", "gc --yes", "check --deep", "status", "log", &diff];
        let other = beside[random.below(beside.len())].split(' ').collect();
        let verbs = [restores[0].clone(), restores[1].clone(), other];
        let mut commands = verbs.clone().map(|verb| player.command(verb));
        let running = commands.each_mut().map(|command| {
            std::thread::sleep(Duration::from_micros(random.below(20_000).try_into().unwrap()));
            Running::spawn(command)
        });
        for ((running, command), verb) in running.into_iter().zip(&commands).zip(&verbs) {
            let said = running.wait(PATIENCE);
            sound(command, &said);
            counts.add(format!("{} beside two others, exit {:?}", verb[0], said.ending));
            let only_looks = !matches!(verb[0], "restore" | "save" | "gc");
            assert!(!only_looks || said.success(), "{verb:?}: {said:?}");
        }
        is_one_of(&player.tree(), &[&saved[0].1, &saved[1].1], "two restores at once");
        player.does(["check", "--deep"]);
    }
}
