//! The names that this crate promises, as a list: a change of the API is a change of `tests/api.txt`, which a reviewer
//! sees. `PITON_WRITE_API=1` writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// The names that a module's `pub use` lines give, in order.
fn names(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in source.split("pub use ").skip(1) {
        let path = line.split(';').next().unwrap_or_default();
        let list =
            path.split_once('{').map_or_else(|| path.rsplit("::").next(), |(_, list)| Some(list)).unwrap_or_default();
        for name in list.trim_end_matches('}').split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let name = if name == "self" {
                path.split("::{").next().and_then(|path| path.rsplit("::").next())
            } else {
                Some(name)
            };
            found.extend(name.map(str::to_owned));
        }
    }
    found
}

#[test]
fn the_promised_names_are_those_of_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(folder.join("src").join(name)).unwrap();
    let (root, flow, names_of) = (read("lib.rs"), read("flow.rs"), read("names/mod.rs"));
    let outside = read("outside.rs");
    let mut listed = String::new();
    let mut promised = 0;
    let (outer, inner) = root.split_at(root.find("\npub mod run {").expect("the module of runs"));
    let names_of = names_of.split("\n\npub mod files;").last().expect("the module's own names");
    let mut modules = vec![("flow", flow.as_str()), ("names", names_of), ("outside", outside.as_str())];
    for module in inner.split("\npub mod ").skip(1) {
        let (name, body) = module.split_once(" {").expect("a module has a body");
        modules.push((name, body.split("\n}").next().expect("it ends")));
    }
    modules.sort_unstable();
    let outer = outer.split("\n//!").last().expect("the crate's documentation ends");
    assert_eq!(names(outer), BTreeSet::from(["open".to_owned()]), "the root has one name");
    for (module, body) in modules {
        let names = names(body);
        // Those of `names` are counted where they come from.
        promised += if ["engine", "names"].contains(&module) { 0 } else { names.len() };
        writeln!(listed, "{module}").unwrap();
        names.iter().for_each(|name| writeln!(listed, "  {name}").unwrap());
    }
    println!("{promised} names besides the hooks of engines");
    let path = folder.join("tests/api.txt");
    if std::env::var_os("PITON_WRITE_API").is_some() {
        std::fs::write(&path, &listed).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, listed, "the promised names changed: run this test with PITON_WRITE_API=1 if that is meant");
}
