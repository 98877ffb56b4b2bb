//! Everything that is wrong with a document is told at once, each with its place.

use piton_flow::{Document, Format};

fn problems(text: &str) -> Vec<String> {
    let ended = Document::parse(text, Format::Yaml).and_then(|document| document.validate());
    ended.err().map(|problems| problems.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

#[test]
fn the_shape_is_told_at_once() {
    let found = problems(
        "
version: 7
nodes: [{data: {type: start}}, {id: a}, {id: b, data: {title: B}}, {id: env, data: {type: end}}, 5]
edges: [{source: a}, {}]
environment_variables: [{value: x}]
",
    );
    assert_eq!(
        found,
        [
            "/version: unsupported version 7: this engine reads 0.x",
            "/nodes/0/id: an id should be here",
            r#"/nodes/1/data: node "a": a map should be here"#,
            r#"/nodes/2/data/type: node "b": the kind of the node should be here"#,
            r#"/nodes/3/id: node "env": the id is not valid: the word is reserved for variables"#,
            "/nodes/4/id: an id should be here",
            "/edges/0/target: the id of a node should be here",
            "/edges/1/source: the id of a node should be here",
            "/edges/1/target: the id of a node should be here",
            "/environment_variables/0/name: a name should be here",
        ]
    );
    assert_eq!(problems("[]"), ["document: it should be a map with nodes and edges, not a list"]);
    assert_eq!(problems("{}"), ["/nodes: it is missing", "/edges: it is missing"]);
}

#[test]
fn the_sense_is_told_at_once() {
    let found = problems("
nodes:
  - {id: a, data: {type: start, variables: [{variable: x, type: fil}]}}
  - {id: b, data: {type: llm, model: m}}
  - {id: b, data: {type: end}}
  - {id: c, data: {type: start}}
  - {id: d, data: {type: template-transform, template: '{% if %}'}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [nobody, x]}, {variable: y, value_selector: [a, b]}]}}
  - {id: f, data: {type: end, outputs: [{variable: x, value_selector: [a]}]}}
  - {id: g, data: {type: command, command: [], checkpoint: maybe}}
  - {id: h, data: {type: command, command: [echo, '{{#nobody.x#}}'], error_strategy: {type: maybe}}}
edges:
  - {source: a, target: nobody}
  - {source: a, target: d}
  - {source: a, target: h}
  - {source: d, target: e}
  - {source: e, target: f}
  - {source: f, target: d}
  - {source: f, target: g, sourceHandle: fail-branch}
");
    let expected = [
        r#"/nodes/2/id: node "b": duplicate node id: it is that of /nodes/1 already"#,
        r#"/edges/0/target: there is no node "nobody""#,
        "/edges: cycle: they go in a circle: ",
        r#"/nodes/3: node "c": there is a start node already"#,
        r#"/nodes/0/data/variables/0/type: node "a": there is no type "fil""#,
        r#"/nodes/4/data/template: node "d": "#,
        r#"/nodes/6/data/outputs/0/value_selector: node "f": a selector is a list of a node's id and one of its variables"#,
        r#"/nodes/7/data/checkpoint: node "g": true or false is wanted, not a string"#,
        r#"/nodes/7/data/command: node "g": a program should be here"#,
        r#"/nodes/8/data/error_strategy/type: node "h": it should be none, fail-branch or default-value"#,
        r#"/nodes/5/data: node "e": it uses a variable of "nobody", which is not a node"#,
        r#"/nodes/8/data: node "h": it uses a variable of "nobody", which is not a node"#,
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} should be {expected}");
    }
    let circle = found.iter().find(|found| found.contains("circle")).unwrap();
    assert!(["d → e → f → d", "e → f → d → e", "f → d → e → f"].iter().any(|way| circle.ends_with(way)), "{circle}");
}

#[test]
fn a_start_is_needed_and_a_node_may_not_follow_itself() {
    let found = problems("{nodes: [{id: a, data: {type: end}}], edges: [{source: a, target: a}]}");
    assert_eq!(found, ["/edges: cycle: they go in a circle: a → a", "/nodes: there is no start node"]);
}
