//! Everything that is wrong with a document is told at once, each with its place.

use piton_flow::{Document, Format, Kinds};

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
            "/version (line 2): unsupported version 7: this engine reads 0.x",
            "/nodes/0/id (line 3): an id should be here",
            r#"/nodes/1/data (line 3): node "a": a map should be here"#,
            r#"/nodes/2/data/type (line 3): node "b": the kind of the node should be here"#,
            r#"/nodes/3/id (line 3): node "env": the id is not valid: the word is reserved for variables"#,
            "/nodes/4/id (line 3): an id should be here",
            "/edges/0/target (line 4): the id of a node should be here",
            "/edges/1/source (line 4): the id of a node should be here",
            "/edges/1/target (line 4): the id of a node should be here",
            "/environment_variables/0/name (line 5): a name should be here",
        ]
    );
    assert_eq!(problems("[]"), ["document: it should be a map with nodes and edges, not a list"]);
    assert_eq!(problems("{}"), ["/nodes (line 1): it is missing", "/edges (line 1): it is missing"]);
}

#[test]
fn the_sense_is_told_at_once() {
    let found = problems("
nodes:
  - {id: a, data: {type: start, variables: [{variable: x, type: fil}]}}
  - {id: b, data: {type: no-such-kind, model: m}}
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
  - {source: h, target: g, sourceHandle: elsewhere}
");
    let expected = [
        r#"/nodes/0/data/variables/0/type (line 3): node "a": there is no type "fil""#,
        r#"/nodes/2/id (line 5): node "b": duplicate node id: it is that of /nodes/1 already"#,
        r#"/nodes/3 (line 6): node "c": there is a start node already"#,
        r#"/nodes/4/data/template (line 7): node "d": "#,
        r#"/nodes/5/data (line 8): node "e": it uses a variable of "nobody", which is not a node"#,
        r#"/nodes/6/data/outputs/0/value_selector (line 9): node "f": a selector is a list of a node's id and one of its variables"#,
        r#"/nodes/7/data/checkpoint (line 10): node "g": true or false is wanted, not a string"#,
        r#"/nodes/7/data/command (line 10): node "g": a program should be here"#,
        r#"/nodes/8/data/error_strategy/type (line 11): node "h": it should be none, fail-branch or default-value"#,
        r#"/nodes/8/data (line 11): node "h": it uses a variable of "nobody", which is not a node"#,
        r#"/edges/0/target (line 13): there is no node "nobody""#,
        "/edges (line 13): cycle: they go in a circle: ",
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
    assert_eq!(
        found,
        ["/edges (line 1): cycle: they go in a circle: a → a", "/nodes (line 1): there is no start node"]
    );
}

/// What the author of the document may have meant is said.
#[test]
fn a_slip_of_the_pen_gets_a_hint() {
    let document = Document::parse(
        "
nodes:
  - {id: begin, data: {type: start}}
  - {id: finish, data: {type: end, outputs: [{variable: x, value_selector: [begn, x]}]}}
edges: [{source: begin, target: finsh}, {source: begin, target: finish}]
",
        Format::Yaml,
    )
    .unwrap();
    let hints: Vec<_> =
        document.validate().unwrap_err().iter().map(|problem| problem.hint.clone().unwrap_or_default()).collect();
    assert_eq!(hints, [r#"did you mean "begin"?"#, r#"did you mean "finish"?"#]);
}

/// A kind that isn't here is a need and no mistake; what runs is refused before anything does.
#[test]
fn needs_are_told_apart_from_mistakes() {
    let text = "
nodes:
  - {id: a, data: {type: start}}
  - {id: b, data: {type: my-company.kind}}
  - {id: c, data: {type: command, command: [make, all]}}
  - {id: d, data: {type: end}}
edges: [{source: a, target: b}, {source: b, target: c}, {source: c, target: d}]
";
    let report = Document::parse(text, Format::Yaml).unwrap().check(&Kinds::builtin());
    assert!(report.is_valid(), "{:?}", report.problems);
    let needs: Vec<_> = report.needs.iter().map(|need| format!("{}: {}", need.node, need.need)).collect();
    assert_eq!(needs, [r#"b: the node kind "my-company.kind""#, r#"c: the program "make""#]);
}

/// Exports are saved in the middle of the work: what is unfinished is a warning there.
#[test]
fn an_unfinished_export_is_valid_with_warnings() {
    let text = "
app: {name: x, mode: workflow}
kind: app
version: 0.3.1
workflow:
  graph:
    nodes:
      - {id: '1', type: custom, data: {type: start, variables: []}}
      - {id: '2', type: custom, data: {type: if-else, cases: [{case_id: 'true', conditions: []}]}}
      - {id: '3', type: custom, data: {type: end, outputs: []}}
      - {id: '4', type: custom-note, data: {type: '', text: hello}}
      - {id: '5', type: custom, data: {type: answer, answer: ''}}
    edges:
      - {source: '1', target: '2', sourceHandle: source}
      - {source: '2', target: '3', sourceHandle: 'gone'}
";
    let report = Document::parse(text, Format::Yaml).unwrap().check(&Kinds::builtin());
    assert!(report.is_valid(), "{:?}", report.problems);
    let warnings: Vec<_> = report.warnings().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            r#"/workflow/graph/nodes/4 (line 12): node "5": unreachable node: nothing leads to it from the start, so it never runs"#,
            r#"/workflow/graph/edges/1/sourceHandle (line 15): node "2": it has no exit "gone", so this edge is never taken"#,
        ]
    );
}

/// What is likely to be a mistake is one in a document that was written by hand, and a warning in an export.
#[test]
fn slips_that_would_go_unnoticed_are_told() {
    let document = |between: &str, edges: &str| {
        format!(
            "nodes:\n  - {{id: s, data: {{type: start}}}}\n  - {{id: x, data: {{{between}}}}}\n  - {{id: t, data: {{type: template-transform, template: t}}}}\n  - {{id: e, data: {{type: end}}}}\nedges: [{{source: s, target: x}}, {{source: x, target: t}}, {{source: t, target: e}}{edges}]\n"
        )
    };
    let plain = "type: template-transform, template: x";
    for (between, edges, wanted) in [
        (plain, ", {source: x, target: t}", "duplicate edge: /edges/1 is the same"),
        ("type: template-transform, template: ' '", "", "/nodes/1/data/template"),
        ("type: code, language: javascript, code: ''", "", "/nodes/1/data/code"),
        ("type: http-request, url: ''", "", "/nodes/1/data/url"),
        (
            "type: template-transform, template: '{{ a }}', variables: [{variable: a, value_selector: [t, output]}]",
            "",
            "it uses a variable of \"t\", which runs after it",
        ),
    ] {
        let text = document(between, edges);
        let problems = Document::parse(&text, Format::Yaml).unwrap().validate().unwrap_err().to_string();
        assert!(problems.contains(wanted), "{between}: {problems}");
    }
    // What lies on another branch may have run.
    let beside = "nodes: [{id: s, data: {type: start}}, {id: a, data: {type: template-transform, template: '{{ b }}', variables: [{variable: b, value_selector: [b, output]}]}}, {id: b, data: {type: template-transform, template: b}}, {id: e, data: {type: end}}]\nedges: [{source: s, target: a}, {source: s, target: b}, {source: a, target: e}, {source: b, target: e}]\n";
    Document::parse(beside, Format::Yaml).unwrap().validate().unwrap();
}

/// Selectors that are still empty are all over the exports of people in the middle of their work.
#[test]
fn what_is_still_empty_in_an_export_is_a_warning() {
    let node = |id: &str, data: &str| format!("      - {{id: {id}, type: custom, data: {{title: {id}, {data}}}}}\n");
    let nodes = [
        node("s", "type: start, variables: []"),
        node("k", "type: knowledge-retrieval, dataset_ids: [], query_variable_selector: [], retrieval_mode: single"),
        node(
            "c",
            "type: code, code: '', code_language: python3, outputs: {}, variables: [{variable: '', value_selector: []}]",
        ),
        node("i", "type: iteration, iterator_selector: [], output_selector: [], start_node_id: it"),
        "      - {id: it, parentId: i, type: custom-iteration-start, data: {type: iteration-start, title: ''}}\n"
            .to_owned(),
        node(
            "q",
            "type: question-classifier, query_variable_selector: [], model: {provider: '', name: '', mode: chat}, classes: [{id: '1', name: ''}], instruction: '', instructions: ''",
        ),
        node("e", "type: end, outputs: []"),
    ];
    let edges = "    edges: [{source: s, target: k}, {source: k, target: c}, {source: c, target: i}, {source: i, target: q}, {source: q, sourceHandle: '1', target: e}]\n";
    let text = format!(
        "app: {{mode: workflow, name: draft}}\nkind: app\nversion: 0.5.0\nworkflow:\n  graph:\n    nodes:\n{}{edges}",
        nodes.concat()
    );
    let report = Document::parse(&text, Format::Yaml).unwrap().check(&Kinds::builtin());
    assert!(report.is_valid(), "{}", report.problems);
    let unfinished: Vec<_> = report
        .warnings()
        .filter(|problem| problem.message.starts_with("unfinished"))
        .map(|problem| problem.node.clone())
        .collect();
    assert_eq!(unfinished, ["k", "c", "i", "q"].map(|node| Some(node.to_owned())));
    // By hand it is a mistake.
    let flat = "nodes: [{id: s, data: {type: start}}, {id: k, data: {type: knowledge-retrieval, query_variable_selector: []}}, {id: e, data: {type: end}}]\nedges: [{source: s, target: k}, {source: k, target: e}]\n";
    assert!(problems(flat)[0].contains("query_variable_selector"), "{:?}", problems(flat));
    // A source of data may be where an export begins.
    let pipeline = text
        .replace("type: start, variables: []", "type: datasource, provider_type: local_file")
        .replace("kind: app", "kind: rag_pipeline");
    assert!(Document::parse(&pipeline, Format::Yaml).unwrap().check(&Kinds::builtin()).is_valid());
}

/// What stands for an answer or an input is what its type says, each item of a list too; an unfinished export may be
/// anything.
#[test]
fn defaults_are_what_their_types_say() {
    let data = "
  - {id: a, data: {type: start, variables: [{variable: n, type: 'array[number]', default: [1, two]}, {variable: b, type: checkbox, default: ''}]}}
  - id: ask
    data:
      type: human-input
      prompt: How many?
      timeout_secs: 60
      timeout_action: default_value
      timeout_default_values: {count: many, tags: [x, {y: 1}], colour: blue, said: 3}
      variables:
        - {name: count, type: number, default_value: few}
        - {name: tags, type: 'array[string]', default: [x, []]}
        - {name: colour, type: select, options: [red, green], default: red}
        - {name: colours, type: multi_select, options: [red, green], default: [red, blue]}
        - {name: said, type: string}
  - {id: end, data: {type: end}}";
    let edges = "[{source: a, target: ask}, {source: ask, target: end}]";
    assert_eq!(
        problems(&format!("nodes:{data}\nedges: {edges}\n")),
        [
            r#"/nodes/0/data/variables/0/default/1 (line 2): node "a": "two" is not a number"#,
            r#"/nodes/1/data/timeout_default_values/colour (line 9): node "ask": "blue" is not one of red, green"#,
            r#"/nodes/1/data/timeout_default_values/count (line 9): node "ask": "many" is not a number"#,
            r#"/nodes/1/data/timeout_default_values/tags/1 (line 9): node "ask": a text is wanted, not a map"#,
            r#"/nodes/1/data/variables/0/default_value (line 11): node "ask": "few" is not a number"#,
            r#"/nodes/1/data/variables/1/default/1 (line 12): node "ask": a text is wanted, not a list"#,
            r#"/nodes/1/data/variables/3/default/1 (line 14): node "ask": "blue" is not one of red, green"#,
        ]
    );
    let inside = format!("nodes:{data}\nedges: {edges}\n").replace('\n', "\n    ");
    assert_eq!(problems(&format!("workflow:\n  graph:\n    {inside}\n")), Vec::<String>::new());
}
