//! What a document gives when it runs.

use piton_flow::{FlowError, Format};
use piton_types::Value;

use crate::support::{inputs, run_told, run_yaml};

const PASS: &str = r#"
version = "0.1.0"

[[nodes]]
id = "begin"
data.type = "start"
data.title = "Begin"
data.variables = [{ variable = "topic", label = "Topic", type = "string", required = true }]

[[nodes]]
id = "finish"
data.type = "end"
data.title = "Finish"
data.outputs = [{ variable = "answer", value_selector = ["begin", "topic"] }]

[[edges]]
source = "begin"
target = "finish"
"#;

const GREET: &str = r#"{
  "version": "0.1.0",
  "nodes": [
    {"id": "begin", "data": {"type": "start", "variables": [{"variable": "who", "type": "string", "required": true}]}},
    {"id": "greet", "data": {"type": "template-transform", "template": "Good morning, {{ who | upper }}!",
      "variables": [{"variable": "who", "value_selector": ["begin", "who"]}]}},
    {"id": "finish", "data": {"type": "end", "outputs": [{"variable": "text", "value_selector": ["greet", "output"]}]}}
  ],
  "edges": [{"source": "begin", "target": "greet"}, {"source": "greet", "target": "finish"}]
}"#;

const DIAMOND: &str = "
version: 0.1.0
nodes:
  - {id: join, data: {type: template-transform, template: '{{ a }}+{{ b }}', variables: [
      {variable: a, value_selector: [left, output]}, {variable: b, value_selector: [right, output]}]}}
  - {id: left, data: {type: template-transform, template: 'L{{ n }}', variables: [{variable: n, value_selector: [in, n]}]}}
  - {id: right, data: {type: template-transform, template: R}}
  - {id: in, data: {type: start, variables: [{variable: n, type: number, default: 7}]}}
  - {id: out, data: {type: end, outputs: [{variable: sum, value_selector: [join, output]}, {variable: gone, value_selector: [in, no]}]}}
edges:
  - {source: in, target: left}
  - {source: in, target: right, sourceHandle: source}
  - {source: left, target: join}
  - {source: right, target: join}
  - {source: join, target: out}
";

#[tokio::test]
async fn a_value_passes_through() {
    let (ended, told) = run_told(PASS, Format::Toml, inputs([("topic", "bees".into())])).await;
    assert_eq!(ended.unwrap(), inputs([("answer", "bees".into())]));
    assert_eq!(
        told,
        ["started false", "begun begin", "finished begin", "begun finish", "finished finish", "succeeded"]
    );
}

#[tokio::test]
async fn a_template_is_rendered() {
    let (ended, _) = run_told(GREET, Format::Json, inputs([("who", "Ada {{ 1 + 1 }}".into())])).await;
    assert_eq!(ended.unwrap(), inputs([("text", "Good morning, ADA {{ 1 + 1 }}!".into())]));
}

#[tokio::test]
async fn branches_join() {
    let (ended, told) = run_told(DIAMOND, Format::Yaml, inputs([])).await;
    assert_eq!(ended.unwrap(), inputs([("sum", "L7+R".into()), ("gone", Value::Null)]));
    let begun: Vec<_> = told.iter().filter_map(|told| told.strip_prefix("begun ")).collect();
    assert_eq!(begun, ["in", "left", "right", "join", "out"]);
}

#[tokio::test]
async fn inputs_are_checked_all_at_once() {
    let document = "
nodes:
  - {id: in, data: {type: start, variables: [
      {variable: must, type: string, required: true},
      {variable: count, type: number},
      {variable: size, type: select, options: [s, m]},
      {variable: flag, type: boolean},
      {variable: short, type: string, max_length: 3},
      {variable: xs, type: 'array[number]'}]}}
  - {id: out, data: {type: end, outputs: [{variable: count, value_selector: [in, count]}, {variable: flag, value_selector: [in, flag]}]}}
edges: [{source: in, target: out}]
";
    let given = inputs([
        ("count", "many".into()),
        ("size", "xl".into()),
        ("flag", 3.into()),
        ("short", "long".into()),
        ("xs", "1".into()),
        ("typo", 1.into()),
    ]);
    let Err(FlowError::Inputs(problems)) = run_yaml(document, given).await else { panic!("accepted") };
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            r#"input "must": it is required"#,
            r#"input "count": "many" is not a number"#,
            r#"input "size": "xl" is not one of s, m"#,
            r#"input "flag": true or false is wanted, not an integer"#,
            r#"input "short": it is longer than 3 characters"#,
            r#"input "xs": a list is wanted, not a string"#,
            r#"input "typo": the workflow doesn't ask for it"#,
        ]
    );
    let given = inputs([("must", "x".into()), ("count", "2.5".into()), ("flag", "true".into())]);
    assert_eq!(run_yaml(document, given).await.unwrap(), inputs([("count", 2.5.into()), ("flag", true.into())]));
}

#[tokio::test]
async fn a_node_that_fails_stops_the_run() {
    let endless = GREET.replace(
        "Good morning, {{ who | upper }}!",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    );
    let (ended, told) = run_told(&endless, Format::Json, inputs([("who", "Ada".into())])).await;
    let Err(FlowError::Node { node, message }) = ended else { panic!("{ended:?}") };
    assert_eq!(node.as_str(), "greet");
    assert!(message.contains("fuel"), "{message}");
    assert_eq!(told[3..], ["begun greet", "failed greet", "run failed"]);
}
