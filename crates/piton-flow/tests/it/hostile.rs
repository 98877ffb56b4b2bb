//! Promise 21: a hostile document is a typed error with a place, in bounded time.

use piton_flow::{Document, Format, Place, Problems};

/// Parsing and checking must fail. What takes for ever fails by never ending.
fn refuse(text: &str, format: Format) -> Problems {
    let ended = Document::parse(text, format).and_then(|document| document.validate());
    let shown: String = text.chars().take(60).collect();
    let problems = ended.expect_err(&shown);
    assert!(problems.iter().len() > 0);
    problems
}

fn place(problems: &Problems) -> Place {
    problems.iter().next().unwrap().place.clone()
}

#[test]
fn duplicate_keys() {
    let (yaml, json, toml) = (
        "nodes: []\nedges: []\nnodes: []\n",
        "{\"nodes\": [],\n \"nodes\": []}",
        "nodes = []\nedges = []\nnodes = []\n",
    );
    for (text, format, line) in [(yaml, Format::Yaml, 3), (json, Format::Json, 2), (toml, Format::Toml, 3)] {
        let found = place(&refuse(text, format));
        assert!(matches!(found, Place::Text { line: at, .. } if at == line), "{format:?}: {found:?}");
    }
    let inner = "nodes:\n  - id: a\n    data: {type: start, type: end}\nedges: []\n";
    assert!(matches!(place(&refuse(inner, Format::Yaml)), Place::Text { line: 3, .. }));
}

#[test]
fn aliases_that_explode() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let inner = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    bomb.push_str("nodes: *a29\nedges: []\n");
    assert!(matches!(place(&refuse(&bomb, Format::Yaml)), Place::Text { .. }));
    // Flat as it is written, deep as it is meant.
    let chain: String = (1..300).map(|n| format!("a{n}: &a{n} {{x: *a{}}}\n", n - 1)).collect();
    refuse(&format!("a0: &a0 x\n{chain}nodes: *a299\nedges: []\n"), Format::Yaml);
    refuse("nodes: &n [*n]\nedges: []\n", Format::Yaml);
}

#[test]
fn nesting() {
    for depth in [150, 100_000] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let json = format!("{{\"nodes\": {open}{close}}}");
        for (text, format) in [
            (json.clone(), Format::Json),
            (json, Format::Yaml),
            (format!("nodes = {open}{close}"), Format::Toml),
            (format!("nodes: {}x", "{a: ".repeat(depth)), Format::Yaml),
            (format!("nodes:\n  {}x", "- ".repeat(depth)), Format::Yaml),
        ] {
            assert!(matches!(place(&refuse(&text, format)), Place::Text { .. }), "{format:?}");
        }
    }
    refuse(&(0..5_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>(), Format::Yaml);
}

#[test]
fn numbers_that_are_none() {
    for (text, format) in [
        ("nodes: .nan\nedges: []", Format::Yaml),
        ("nodes: [-.inf]\nedges: []", Format::Yaml),
        ("nodes = [nan]\nedges = []", Format::Toml),
        ("nodes = 99999999999999999999", Format::Toml),
        ("{\"nodes\": 1e999}", Format::Json),
        ("{\"nodes\": 99999999999999999999}", Format::Json),
    ] {
        refuse(text, format);
    }
}

#[test]
fn texts_that_are_no_documents() {
    let huge = "x".repeat(9 << 20);
    for format in [Format::Yaml, Format::Json, Format::Toml] {
        for text in
            ["", "\0", "}", "nodes: [", "\u{feff}\u{feff}", "--- a\n--- b\n", "!!python/object:os.system x", &huge]
        {
            refuse(text, format);
        }
    }
}

/// More than any document needs is refused by its size, before the parser reads it.
#[test]
fn fifty_megabytes() {
    let nodes = "{\"id\": \"a\", \"data\": {\"type\": \"end\"}},".repeat(50 << 20 >> 5);
    let valid = format!("{{\"nodes\": [{}], \"edges\": []}}", nodes.trim_end_matches(','));
    assert!(valid.len() > 50 << 20);
    for format in [Format::Json, Format::Yaml, Format::Toml] {
        let problems = refuse(&valid, format).to_string();
        assert!(problems.contains("at most 8388608 are allowed"), "{problems}");
    }
}

#[test]
fn ids_and_edges() {
    let long = "x".repeat(300);
    for id in [long.as_str(), "", "a/b", "a#1", "..\\u0000", "a\\nb"] {
        let text = format!("{{\"nodes\": [{{\"id\": \"{id}\", \"data\": {{\"type\": \"start\"}}}}], \"edges\": []}}");
        let problems = refuse(&text, Format::Json);
        assert_eq!(place(&problems), Place::Path("/nodes/0/id".parse().unwrap()), "{id:?}");
        assert!(problems.to_string().len() < 200, "a long id isn't repeated whole");
    }
    let nobody = format!("{{\"nodes\": [], \"edges\": [{{\"source\": \"{long}\", \"target\": \"<script>\"}}]}}");
    assert!(refuse(&nobody, Format::Json).to_string().len() < 300);
}

/// A circle of as many nodes as fit, and a complete graph.
#[test]
fn large_graphs_are_checked_in_time() {
    let node = |n: usize| format!("{{\"id\": \"n{n}\", \"data\": {{\"type\": \"end\"}}}}");
    let edge = |a: usize, b: usize| format!("{{\"source\": \"n{a}\", \"target\": \"n{b}\"}}");
    let document = |nodes: usize, edges: Vec<String>| {
        let nodes: Vec<_> = (0..nodes).map(node).collect();
        format!("{{\"nodes\": [{}], \"edges\": [{}]}}", nodes.join(","), edges.join(","))
    };
    let circle = document(20_000, (0..20_000).map(|n| edge(n, (n + 1) % 20_000)).collect());
    assert!(refuse(&circle, Format::Json).to_string().contains("circle"));
    let complete = document(300, (0..300).flat_map(|a| (0..a).map(move |b| edge(a, b))).collect());
    assert!(refuse(&complete, Format::Json).to_string().contains("there is no start node"));
}
