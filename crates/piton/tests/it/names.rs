//! Every name that the specification puts in brackets is offered: it stands in an example of `piton::names`, which runs as a
//! test of the documentation, and on the page `docs/names.md`.

use std::path::Path;

/// Names with the requirement that prescribes them. Those behind `-` are no names of Rust: the page tells of them.
const NAMES: &str = include_str!("../names.txt");

/// F10, R5, V3-V5, F2, F6, F8, W1-W10: no prescribed name is missing.
#[test]
fn every_prescribed_name_is_documented_and_used_in_an_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
    let page = read("../../docs/names.md");
    let mut examples = String::new();
    for source in ["src/names/mod.rs", "src/names/files.rs"] {
        let text = read(source);
        let mut is_code = false;
        for line in text.lines().filter_map(|line| line.strip_prefix("//!")) {
            match line.trim() {
                "```" => is_code = !is_code,
                code if is_code => examples.push_str(&format!("{code}\n")),
                _ => {}
            }
        }
    }
    let has_word = |text: &str, name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !is_part(text[..at].chars().next_back()) && !is_part(text[at + name.len()..].chars().next())
        })
    };
    let mut missing = Vec::new();
    for line in NAMES.lines().filter(|line| !line.is_empty()) {
        let (id, names) = line.split_once(' ').unwrap();
        let (names, only_told) = names.split_once(" - ").unwrap_or((names, ""));
        for name in names.split_whitespace().filter(|name| *name != "-") {
            if !has_word(&examples, name) {
                missing.push(format!("{id} {name}: no example"));
            }
        }
        for name in names.split_whitespace().chain(only_told.split_whitespace()).filter(|name| *name != "-") {
            if !has_word(&page, name) {
                missing.push(format!("{id} {name}: not in docs/names.md"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The list is the whole of the specification, where that lies beside the repository (`../shared`, or `PITON_SHARED`).
#[test]
fn every_bracketed_name_of_the_specification_is_on_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("PITON_SHARED").map_or_else(|| root.join("../shared"), Into::into);
    let Ok(text) = std::fs::read_to_string(shared.join("spec.md")) else {
        eprintln!("NOT RUN: there is no specification at {}", shared.display());
        return;
    };
    let listed: Vec<&str> = NAMES.split_whitespace().collect();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut missing = Vec::new();
    let mut count = 0;
    for line in text.lines().filter(|line| line.starts_with("- ")) {
        let inside = line.split('[').skip(1).filter_map(|rest| rest.split(']').next());
        // `[description]` is an argument of a command, and what is quoted as an example no name.
        for group in inside.filter(|group| *group != "description").map(|group| group.split("; e.g.").next().unwrap()) {
            for piece in group.split([',', ';', ':', '{', '}', '→']) {
                let words: Vec<&str> = piece.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect();
                for word in &words {
                    let is_name = words.len() == 1 || word.contains('_') || word.starts_with(char::is_uppercase);
                    // What a sentence says of a method isn't a name of it.
                    if is_name && !["None", "schema", "secs", "reason"].contains(word) {
                        count += 1;
                        if !listed.contains(word) {
                            missing.push(format!("{}: {word}", &line[2..5]));
                        }
                    }
                }
            }
        }
    }
    assert!(count > 80, "only {count} names were found");
    assert!(missing.is_empty(), "{missing:#?}");
}
