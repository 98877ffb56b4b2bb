//! Documents as no person would write them: those of our examples and cases with bytes, lines and values changed, nested
//! deeply, repeated, referring to themselves. Read, checked, tested and run, they end in time and within their memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use piton_testing::SeededRandom;
use piton_testing::process::{Ending, Finished, Running};

use super::player::{PATIENCE, Player, sound};
use super::{Counts, finds, play};

/// How much memory a document may make the binary use, in KiB.
pub(super) const MEMORY: u64 = 1 << 20;

#[test]
fn documents() {
    play("documents", (1, 4), round);
}

/// Programs that panic, take a signal, hang, or take too much.
#[test]
fn documents_find_what_ends_badly() {
    let script = |line: &str, patience: Duration, memory: u64| {
        let mut command = Command::new("sh");
        bounded(command.args(["-c", line]), patience, memory);
    };
    let long = PATIENCE;
    finds(1, &["Code(101)"], |_, _| script("exit 101", long, MEMORY));
    finds(1, &["Signal(11)"], |_, _| script("kill -SEGV $$", long, MEMORY));
    finds(1, &["TimedOut"], |_, _| script("exec sleep 60", Duration::from_millis(300), MEMORY));
    finds(1, &["KiB of memory"], |_, _| script("exec sleep 60", long, 100));
}

/// Runs a program to its end, which must be a sound one that comes in time and within this many KiB.
pub(super) fn bounded(command: &mut Command, patience: Duration, memory: u64) -> (Finished, u64) {
    let running = Running::spawn(command);
    let status = format!("/proc/{}/status", running.pid().as_raw_nonzero());
    let (end, mut most) = (Instant::now() + patience, 0);
    while Instant::now() < end {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        // A process that has ended has no memory any more.
        let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:")) else { break };
        most = most.max(line.trim().trim_end_matches(" kB").parse().unwrap());
        assert!(most <= memory, "{command:?} took {most} KiB of memory");
        std::thread::sleep(Duration::from_millis(2));
    }
    let said = running.wait(end.saturating_duration_since(Instant::now()) + Duration::from_millis(200));
    assert_ne!(said.ending, Ending::TimedOut, "{command:?}: {said:?}");
    sound(command, &said);
    (said, most)
}

/// The folders of our cases and examples.
fn cases() -> &'static [PathBuf] {
    static CASES: OnceLock<Vec<PathBuf>> = OnceLock::new();
    CASES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folders = [root.join("../piton-app/tests/cases"), root.join("../../examples/workflows")];
        let all = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let mut all: Vec<_> = all.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
        all.sort();
        all
    })
}

/// What stands in the place of a value.
fn odd(random: &SeededRandom) -> String {
    const ODD: [&str; 28] = [
        "~",
        "''",
        "1e400",
        "-0",
        ".nan",
        "0x7fffffffffffffffffff",
        "[]",
        "{}",
        "[[]]",
        "&a [*a]",
        "*a",
        "!!binary x",
        "!!set {a, b}",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "'{{#a.b.c#}}'",
        "'{{ x'",
        "'{% for a in b %}'",
        "'{{ 1/0 }}'",
        "true",
        "2026-02-30",
        "? x",
        "<<: *a",
        "| \n  x",
        "'../../../etc/passwd'",
        "'http://127.0.0.1:1/'",
        "start",
        "loop",
    ];
    match random.below(24) {
        0 => "[".repeat(1 << random.below(17)),
        1 => format!("{}1{}", "[".repeat(1 << random.below(14)), "]".repeat(1 << random.below(14))),
        2 => format!("{}1{}", "{a: ".repeat(1 << random.below(14)), "}".repeat(1 << random.below(14))),
        3 => format!("'{}'", "x".repeat(1 << random.below(22))),
        4 => format!("'{{{{ {}x{} }}}}'", "(".repeat(1 << random.below(15)), ")".repeat(1 << random.below(15))),
        5 => format!("'{}'", "{% if a %}".repeat(1 << random.below(14))),
        6 => format!("[{}]", "9, ".repeat(1 << random.below(18))),
        7 => random.next_u64().to_string(),
        _ => ODD[random.below(ODD.len())].to_owned(),
    }
}

/// Aliases that stand for twice as much, line by line.
fn explosion(random: &SeededRandom) -> String {
    let lines = (1..4 + random.below(30)).map(|n| format!("x{n}: &x{n} [*x{0}, *x{0}]\n", n - 1));
    std::iter::once("x0: &x0 [lol, lol]\n".to_owned()).chain(lines).collect()
}

/// What a template or a text may be made of.
const PIECES: [&str; 14] = [
    "{{ x }}",
    "{{#in.x#}}",
    "{% for i in range(3) %}{{ i }}{% endfor %}",
    "{{ 9 ** 9 }}",
    "{{ x | upper }}",
    "{% if x %}",
    "{{ 'x' * 1000000 }}",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "\u{202e}",
    "\u{0}",
    "$(id)",
    "((a+)+)+$",
    "{{ x.y.z[0] }}",
    "{{ range(1000000000) | list }}",
];

/// Puts a piece into a text of a document, so that most of them are still valid.
fn fill(text: &mut Vec<u8>, random: &SeededRandom) {
    let old = String::from_utf8_lossy(text).into_owned();
    let is_number = |at: &usize| old.as_bytes()[*at].is_ascii_digit();
    let digits: Vec<usize> = (0..old.len()).filter(is_number).collect();
    let quotes: Vec<usize> = old.match_indices('\'').map(|(at, _)| at + 1).collect();
    let (digit, quote) = (digits.get(random.below(digits.len())), quotes.get(random.below(quotes.len())));
    *text = match (digit, quote, random.below(3)) {
        (Some(at), _, 0) => {
            let number = ["0", "-1", "1.5", "99999", "9223372036854775807"][random.below(5)];
            format!("{}{number}{}", &old[..*at], &old[at + 1..])
        }
        (_, Some(at), _) => {
            let piece = PIECES[random.below(PIECES.len())].replace('\'', "\"");
            format!("{}{}{}", &old[..*at], piece.repeat(1 << random.below(8)), &old[*at..])
        }
        _ => old.replace("type: template-transform", "type: code"),
    }
    .into_bytes();
}

/// Changes a document in one of many ways.
fn mutate(text: &mut Vec<u8>, random: &SeededRandom) {
    let lines: Vec<Vec<u8>> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = random.below(text.len());
    let (line, other) = (random.below(lines.len()), random.below(lines.len()));
    let rebuilt = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut lines = lines.clone();
        if !lines.is_empty() {
            change(&mut lines);
        }
        lines.concat()
    };
    match random.below(20) {
        0 if !text.is_empty() => text[at] ^= 1 << random.below(8),
        1 => text.truncate(at),
        2 => *text = rebuilt(&|lines| drop(lines.remove(line))),
        3 => *text = rebuilt(&|lines| lines.insert(other, lines[line].clone())),
        4 => *text = rebuilt(&|lines| lines.swap(line, other)),
        5 => *text = rebuilt(&|lines| lines[line].splice(..0, b" ".repeat(1 + random.below(4))).for_each(drop)),
        6 => text.splice(..0, explosion(random).into_bytes()).for_each(drop),
        7 => {
            let again = text[at..].repeat(1 + random.below(50));
            text.extend(again);
        }
        // A value of its own in the place of one that is there.
        _ => {
            let value = odd(random);
            *text = rebuilt(&|lines| {
                let old = String::from_utf8_lossy(&lines[line]).into_owned();
                let ends: Vec<usize> = old.match_indices(": ").map(|(at, _)| at + 2).collect();
                let from = ends.get(random.below(ends.len())).copied().unwrap_or(old.trim_end().len());
                let to = old[from..].find([',', '}', ']', '\n']).map_or(old.len(), |at| from + at);
                lines[line] = format!("{}{value}{}", &old[..from], &old[to..]).into_bytes();
            });
        }
    }
}

fn round(random: &SeededRandom, counts: &Counts) {
    let player = Player::new(random);
    let case = &cases()[random.below(cases().len())];
    let folder = player.work().join("case");
    std::fs::create_dir(&folder).unwrap();
    piton_testing::scratch::copy_tree(case, &folder).unwrap();
    // Nothing that a mutated document names is run.
    player.world().write("strict.toml", "level = \"strict\"\n");
    for _ in 0..4 {
        let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file());
        files.sort();
        // The document most of the time, else what the case says of it.
        let document = files.iter().find(|path| path.file_stem().is_some_and(|stem| stem == "workflow"));
        let Some(document) = document.or(files.first()) else { return };
        let file = if random.one_in(4) { &files[random.below(files.len())] } else { document };
        let (kept, mut text) = (file.clone(), std::fs::read(file).unwrap());
        let original = text.clone();
        let gentle = random.one_in(2);
        for _ in 0..=[0, 0, 1, 3][random.below(4)] {
            if gentle { fill(&mut text, random) } else { mutate(&mut text, random) }
        }
        std::fs::write(&kept, &text).unwrap();
        let document = document.to_str().unwrap();
        let verbs: [&[&str]; 4] = [
            &["validate", document],
            &["graph", document],
            &["test", "case"],
            &["run", document, "--config", "strict.toml", "--id", "x"],
        ];
        for verb in verbs {
            let (said, most) = bounded(&mut player.command(verb), PATIENCE, MEMORY);
            counts.add(format!("{} exit {:?}", verb[0], said.ending));
            counts.most(format!("{} KiB at most", verb[0]), usize::try_from(most).unwrap());
        }
        counts.add("documents");
        // The next one begins with a document that can be read, most of the time.
        if !random.one_in(4) {
            std::fs::write(&kept, original).unwrap();
        }
    }
}
