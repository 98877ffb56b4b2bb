//! What real exports leave loose is read as it is meant, and names that nothing gives are told with the nearest one (F1).

use piton_flow::{Document, Format, Kinds};

fn export(nodes: &str, edges: &str) -> Document {
    let text = format!(
        "app: {{mode: workflow, name: loose}}\nkind: app\nversion: 0.5.0\nworkflow:\n  environment_variables: [{{name: most, \
         value_type: number, value: '3'}}]\n  conversation_variables:\n  graph:\n    nodes:\n{nodes}    edges: {edges}\n"
    );
    Document::parse(&text, Format::Yaml).unwrap()
}

/// F1: numbers and switches as texts, texts as numbers, empty texts and null lists are what exports contain.
#[test]
fn what_an_export_leaves_loose_is_accepted() {
    let document = export(
        "    - {id: s, type: custom, data: {type: start, title: 1, variables: [{variable: name, type: text-input, required: 'true', max_length: '48', options: null}]}}
    - {id: h, data: {type: http-request, method: get, url: 'http://localhost', headers: null, params: '', body: {type: none, data: null}, timeout: {connect: '10', read: '', write: 20}, retry_config: {max_retries: '3', retry_enabled: 'true', retry_interval: '1000'}}}
    - {id: l, data: {type: llm, model: {provider: p, name: 5, mode: chat, completion_params: {}}, memory: {window: {enabled: 'false', size: '50'}}, vision: {enabled: 'false'}, context: {enabled: 'false', variable_selector: []}, prompt_template: [{role: user, text: hello}]}}
    - {id: e, data: {type: end, outputs: [{variable: a, value_selector: [s, name]}, {variable: n, value_selector: [env, most]}]}}
",
        "[{source: s, target: h}, {source: h, target: l}, {source: l, target: e}]",
    );
    let report = document.check(&Kinds::builtin());
    assert_eq!(report.problems.iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(document.environment[0].value, 3.into());
    // What can't be meant stays a mistake.
    let wrong = export(
        "    - {id: s, data: {type: start, variables: []}}
    - {id: h, data: {type: http-request, method: get, url: 'http://localhost', retry_config: {retry_interval: soon}}}
    - {id: e, data: {type: end, outputs: []}}
",
        "[{source: s, target: h}, {source: h, target: e}]",
    );
    assert!(wrong.check(&Kinds::builtin()).problems.to_string().contains("retry_interval"));
}

/// F1: a variable that no node gives is a warning with the nearest name, of nodes, of the document and in templates.
#[test]
fn names_that_nothing_gives_are_warned_of() {
    let text = "
environment_variables: [{name: most, value: 3}]
conversation_variables: [{name: asked, value: 0}]
nodes:
- {id: in, data: {type: start, variables: [{variable: topic, type: string}]}}
- {id: ask, data: {type: llm, model: {provider: p, name: m}, prompt_template: [{role: user, text: '{{#in.topik#}} {{#sys.qeury#}} {{#env.mots#}} {{#conversation.asked#}}'}]}}
- {id: make, data: {type: template-transform, template: '{{ nmae }} {{ name }} {% for i in range(2) %}{{ i }}{% endfor %}', variables: [{variable: name, value_selector: [ask, txet]}]}}
- {id: run, data: {type: command, error_strategy: fail-branch, command: [echo, '{{#make.output#}}']}}
- {id: out, data: {type: end, outputs: [{variable: a, value_selector: [run, stdout]}, {variable: b, value_selector: [run, error_message]}]}}
edges: [{source: in, target: ask}, {source: ask, target: make}, {source: make, target: run}, {source: run, target: out}]
";
    let report = Document::parse(text, Format::Yaml).unwrap().check(&Kinds::builtin());
    assert!(report.is_valid(), "{}", report.problems);
    let told = report.warnings().filter(|warning| warning.message.contains("uses"));
    let told: Vec<_> = told.map(|warning| (warning.message.as_str(), warning.hint.as_deref())).collect();
    assert_eq!(
        told,
        [
            (r#"it uses "topik", which "in" doesn't give"#, Some(r#"did you mean "topic"?"#)),
            (r#"it uses "qeury", which "sys" doesn't give"#, Some(r#"did you mean "query"?"#)),
            (r#"it uses "mots", which "env" doesn't give"#, Some(r#"did you mean "most"?"#)),
            (r#"it uses "txet", which "ask" doesn't give"#, Some(r#"did you mean "text"?"#)),
            (r#"its template uses "nmae", which isn't among its variables"#, Some(r#"did you mean "name"?"#)),
        ]
    );
}
