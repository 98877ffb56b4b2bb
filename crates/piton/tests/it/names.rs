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
