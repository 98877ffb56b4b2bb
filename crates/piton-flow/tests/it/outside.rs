//! Nodes that reach outside, against servers on loopback: what they send, what they make of answers, and what
//! the guard around them lets through (F1, F11, promises 23 to 26).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use piton_flow::{
    Audit, AuditEntry, AuditError, Credential, Document, EventSink, Flow, FlowError, Format, Host, Inputs, Kinds,
    Knowledge, NoJournal, Outputs, Outside, OutsideConfig, Quotas, SecurityLevel, Services, ToolServer, run,
};
use piton_model::SecretString;
use piton_model::chat::{Price, Provider, ToolSpec, Wire};
use piton_model::mcp::{McpError, ToolOutput};
use piton_testing::ManualClock;
use piton_types::{Event, Value, from_json, to_json};

use crate::server::{Received, Server, Step, events, json, open, reply};
use crate::support::{Counter, inputs};

/// What is written down.
#[derive(Default)]
struct Book(Mutex<Vec<AuditEntry>>);

impl Audit for Book {
    fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
        self.0.lock().unwrap().push(entry.clone());
        Ok(())
    }
}

/// Everything that a run left where people look.
struct Ran {
    ended: Result<Outputs, FlowError>,
    events: Vec<Event>,
    audit: Vec<String>,
}

impl Ran {
    fn outputs(&self) -> &Outputs {
        self.ended.as_ref().unwrap_or_else(|error| panic!("{error}"))
    }

    fn error(&self) -> String {
        self.ended.as_ref().unwrap_err().to_string()
    }

    fn streamed(&self) -> String {
        let text = |event: &Event| match event {
            Event::StepText { text, .. } => Some(text.clone()),
            _ => None,
        };
        self.events.iter().filter_map(text).collect()
    }
}

async fn run_in(mut config: OutsideConfig, document: &str, given: Inputs) -> Ran {
    let book = Arc::new(Book::default());
    config.audit = Some(book.clone());
    let services = Outside::new(config).unwrap().install(Services::default());
    let told = Mutex::new(Vec::new());
    let tell = |event: &Event| told.lock().unwrap().push(event.clone());
    let (journal, clock, ids) = (NoJournal::new("a-run".parse().unwrap()), ManualClock::default(), Counter::default());
    let host = Host { events: EventSink::Call(&tell), services: &services, ..Host::new(&journal, &clock, &ids) };
    let document = Document::parse(document, Format::Yaml).unwrap_or_else(|problems| panic!("{problems}"));
    let flow = Flow::build(&document, &Kinds::builtin()).unwrap_or_else(|problems| panic!("{problems}"));
    let ended = run(&flow, given, &host).await.map(|finished| finished.outputs);
    let audit = book
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|entry| format!("{:?} {} {}", entry.kind, entry.step, entry.detail))
        .collect();
    Ran { ended, events: told.into_inner().unwrap(), audit }
}

/// A document of one node `n` between start and end.
fn one(data: &str, outputs: &[&str]) -> String {
    let data = data.trim().replace('\n', "\n      ");
    let outputs: String =
        outputs.iter().map(|name| format!("        - {{variable: {name}, value_selector: [n, {name}]}}\n")).collect();
    format!(
        "version: '0.1.0'\nnodes:\n  - id: start\n    data: {{type: start, title: S, variables: [{{variable: q, type: string}}, \
         {{variable: file, type: object}}]}}\n  - id: n\n    data:\n      {data}\n  - id: end\n    data:\n      type: end\n      \
         outputs:\n{outputs}edges:\n  - {{source: start, target: n}}\n  - {{source: n, target: end}}\n"
    )
}

/// A configuration that may reach loopback, with the server as its models.
fn reaching(server: &Server) -> OutsideConfig {
    let mut config = OutsideConfig::at(SecurityLevel::Standard);
    config.network = config.network.trusting("127.0.0.1");
    config.providers.insert("openai".to_owned(), provider(server));
    config
}

fn provider(server: &Server) -> Provider {
    let mut provider = Provider::new(Wire::OpenAi);
    provider.base_url = Some(server.url("/v1"));
    provider.api_key = Some(SecretString::from("sk-canary-123"));
    provider.default_model = Some("small".to_owned());
    provider
}

fn said(text: &str) -> String {
    let text = to_json(&Value::from(text)).unwrap();
    format!(
        r#"{{"choices":[{{"message":{{"content":{text}}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":3,"completion_tokens":2}}}}"#
    )
}

async fn model(text: &'static str) -> Server {
    Server::start(move |_| json(200, &said(text))).await
}

fn show(value: &Value) -> String {
    to_json(value).unwrap().to_string()
}

const LLM: &str = "type: llm\nmodel: {provider: openai, name: small}\nprompt_template: [{role: system, text: Rules}, {role: user, text: 'Q {{#start.q#}} {{ x }}'}]";

#[tokio::test]
async fn every_kind_of_body_is_sent() {
    let file =
        Value::map([("filename", "a\"b.txt".into()), ("mime_type", "text/plain".into()), ("content", "inside".into())]);
    for (body, kind, sent) in [
        ("{type: json, data: '{\"q\": \"{{#start.q#}}\"}'}", "application/json", r#"{"q": "bees"}"#),
        ("{type: json, data: [{type: text, value: '[1]'}]}", "application/json", "[1]"),
        ("{type: raw-text, data: 'say {{#start.q#}}'}", "text/plain", "say bees"),
        (
            "{type: x-www-form-urlencoded, data: [{key: a, value: '{{#start.q#}} & co'}]}",
            "application/x-www-form-urlencoded",
            "a=bees+%26+co",
        ),
        ("{type: x-www-form-urlencoded, data: \"a: 1\\nb: 2\"}", "application/x-www-form-urlencoded", "a=1&b=2"),
        ("{type: binary, data: [{type: file, file: [start, file]}]}", "text/plain", "inside"),
        (
            "{type: form-data, data: [{key: t, type: text, value: x}, {key: f, type: file, file: [start, file]}]}",
            "multipart/form-data; boundary=",
            "filename=\"a%22b.txt\"\r\nContent-Type: text/plain\r\n\r\ninside\r\n--",
        ),
    ] {
        let server = Server::start(|_| reply(200, &[("x-a", "1"), ("x-a", "2")], "ok")).await;
        let node = format!(
            "type: http-request\nmethod: post\nurl: '{}?z=1'\nheaders: \"X-One: {{{{#start.q#}}}}\\nX-Empty:\"\nparams: [{{key: p, value: 'a b'}}]\nbody: {body}",
            server.url("/x")
        );
        let given = inputs([("q", "bees".into()), ("file", file.clone())]);
        let ran = run_in(reaching(&server), &one(&node, &["status_code", "body", "headers"]), given).await;
        assert_eq!(
            (&ran.outputs()["status_code"], &ran.outputs()["body"]),
            (&Value::from(200), &Value::from("ok")),
            "{body}"
        );
        assert_eq!(ran.outputs()["headers"].field("x-a"), Some(&Value::from("1, 2")));
        let received = server.received().pop().unwrap();
        assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/x?z=1&p=a+b"));
        assert_eq!((received.headers["x-one"].as_str(), received.headers["x-empty"].as_str()), ("bees", ""));
        assert!(received.headers["content-type"].starts_with(kind), "{body}: {received:?}");
        assert!(
            received.body == sent || kind.starts_with("multipart") && received.body.contains(sent),
            "{body}: {received:?}"
        );
    }
}

#[tokio::test]
async fn every_kind_of_authorization_is_sent() {
    for (authorization, header, sent) in [
        ("{type: basic_auth, username: admin, password: pass123}", "authorization", "Basic YWRtaW46cGFzczEyMw=="),
        ("{type: bearer_token, token: '{{#start.q#}}'}", "authorization", "Bearer bees"),
        ("{type: api-key, config: {type: bearer, api_key: k}}", "authorization", "Bearer k"),
        ("{type: api-key, config: {type: basic, api_key: 'u:p'}}", "authorization", "Basic dTpw"),
        ("{type: api-key, config: {type: custom, api_key: k, header: X-Key}}", "x-key", "k"),
        ("{type: credential, group: hub}", "x-token", "tok-canary-77"),
    ] {
        let server = Server::start(|_| reply(200, &[], "ok")).await;
        let mut config = reaching(&server);
        let value = SecretString::from("tok-canary-77");
        let credential = Credential { hosts: vec!["127.0.0.1".to_owned()], header: "X-Token".to_owned(), value };
        config.credentials.insert("hub".to_owned(), credential);
        let node = format!("type: http-request\nurl: '{}'\nauthorization: {authorization}", server.url("/"));
        let ran = run_in(config, &one(&node, &["body"]), inputs([("q", "bees".into())])).await;
        ran.outputs();
        assert_eq!(server.received()[0].headers[header], sent);
        assert!(!format!("{:?}{:?}", ran.events, ran.audit).contains("canary"));
    }
}

#[tokio::test]
async fn a_credential_goes_to_its_hosts_only() {
    let server = Server::start(|_| reply(200, &[], "ok")).await;
    let mut config = reaching(&server);
    let credential =
        Credential { hosts: vec!["api.example.com".to_owned()], header: "X".to_owned(), value: "tok-canary".into() };
    config.credentials.insert("hub".to_owned(), credential);
    let node =
        format!("type: http-request\nurl: '{}'\nauthorization: {{type: credential, group: hub}}", server.url("/"));
    let ran = run_in(config, &one(&node, &["body"]), Inputs::new()).await;
    assert!(ran.error().contains("\"hub\" is not for 127.0.0.1"), "{}", ran.error());
    assert!(server.received().is_empty());
    assert!(ran.audit[0].starts_with("Refused n"), "{:?}", ran.audit);
}

/// Promise 23, at the node: nothing was reached, and the refusal is written down.
#[tokio::test]
async fn loopback_is_refused_at_standard_and_reached_at_permissive() {
    let server = Server::start(|_| reply(200, &[], "inside")).await;
    let document = one(&format!("type: http-request\nurl: '{}'", server.url("/")), &["body"]);
    for level in [SecurityLevel::Strict, SecurityLevel::Standard] {
        let ran = run_in(OutsideConfig::at(level), &document, Inputs::new()).await;
        assert!(ran.error().contains("127.0.0.1 is a loopback address"), "{}", ran.error());
        assert!(ran.audit.iter().any(|line| line.starts_with("Refused n")), "{:?}", ran.audit);
    }
    assert!(server.received().is_empty());
    let ran = run_in(OutsideConfig::at(SecurityLevel::Permissive), &document, Inputs::new()).await;
    assert_eq!(ran.outputs()["body"], Value::from("inside"));
}

#[tokio::test]
async fn a_status_fails_the_node_if_the_document_says_so() {
    let server = Server::start(|_| reply(500, &[], "server error")).await;
    let node = format!("type: http-request\nurl: '{}'", server.url("/"));
    let ran = run_in(reaching(&server), &one(&node, &["status_code"]), Inputs::new()).await;
    assert_eq!(ran.outputs()["status_code"], Value::from(500));
    let ran =
        run_in(reaching(&server), &one(&format!("{node}\nfail_on_error_status: true"), &["body"]), Inputs::new()).await;
    assert!(ran.error().contains("HTTP 500 server error"), "{}", ran.error());
}

#[tokio::test]
async fn an_answer_without_an_end_fails_the_node() {
    let server = Server::start(|_| {
        let mut steps = open("text/plain");
        steps.push(Step::Endlessly(vec![b'x'; 1 << 16]));
        steps
    })
    .await;
    let mut config = reaching(&server);
    config.network.max_body = 1 << 20;
    let node = format!("type: http-request\nurl: '{}'", server.url("/"));
    let ran = run_in(config, &one(&node, &["body"]), Inputs::new()).await;
    assert!(ran.error().contains("more than 1048576 bytes"), "{}", ran.error());
}

#[tokio::test]
async fn the_timeout_of_the_document_holds() {
    let server = Server::start(|_| vec![Step::Hang]).await;
    for timeout in ["0.2", "{connect: 0, read: 0.2, write: 0}"] {
        let node = format!("type: http-request\nurl: '{}'\ntimeout: {timeout}", server.url("/"));
        let ran = run_in(reaching(&server), &one(&node, &["body"]), Inputs::new()).await;
        assert!(ran.error().contains("no answer within 0.2 seconds"), "{}", ran.error());
    }
}

#[tokio::test]
async fn code_runs_in_both_languages_and_its_outputs_are_checked() {
    let server = model("").await;
    let js = "type: code\nlanguage: javascript\ncode: 'function main({q}) { return {up: q.toUpperCase(), n: q.length, extra: 1} }'\nvariables: [{variable: q, value_selector: [start, q]}]";
    let given = || inputs([("q", "bees".into())]);
    let ran = run_in(reaching(&server), &one(js, &["up", "n", "extra"]), given()).await;
    assert_eq!(show(&Value::Map(ran.outputs().clone())), r#"{"extra":1,"n":4,"up":"BEES"}"#);
    let typed = format!("{js}\noutputs: {{up: {{type: string, children: null}}, n: {{type: number}}}}");
    let ran = run_in(reaching(&server), &one(&typed, &["up", "n", "extra"]), given()).await;
    assert_eq!(show(&Value::Map(ran.outputs().clone())), r#"{"extra":null,"n":4,"up":"BEES"}"#);
    for (outputs, error) in [
        ("{up: {type: number}}", "Output up is not a number, got a string instead."),
        ("{gone: {type: string}}", "Output gone is missing."),
        ("{up: {type: 'array[string]'}}", "Output up is not an array"),
    ] {
        let ran = run_in(reaching(&server), &one(&format!("{js}\noutputs: {outputs}"), &["up"]), given()).await;
        assert!(ran.error().contains(error), "{}", ran.error());
    }
    let py = "type: code\ncode_language: python3\ncode: \"def main(q):\\n    return {'items': [q, q], 'o': {'k': 1.5}}\"\nvariables: [{variable: q, value_selector: [start, q]}]\noutputs: {items: {type: 'array[string]'}, o: {type: object, children: {k: {type: number}}}}";
    let ran = run_in(reaching(&server), &one(py, &["items", "o"]), given()).await;
    assert_eq!(show(&Value::Map(ran.outputs().clone())), r#"{"items":["bees","bees"],"o":{"k":1.5}}"#);
    assert_eq!(ran.audit, ["Code n python3"]);
}

#[tokio::test]
async fn a_model_streams_and_is_counted() {
    let server = Server::start(|_| {
        events(&[
            r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"content":"Hello"}}]}"#,
            r#"{"choices":[{"delta":{"content":" world"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#,
            "[DONE]",
        ])
    })
    .await;
    let mut config = reaching(&server);
    let price = Price { input: 1e6, output: 2e6 };
    config.providers.get_mut("openai").unwrap().prices.insert("small".to_owned(), price);
    let ran = run_in(
        config,
        &one(LLM, &["text", "usage", "finish_reason", "reasoning_content"]),
        inputs([("q", "bees".into())]),
    )
    .await;
    assert_eq!(ran.streamed(), "Hello world");
    let outputs = ran.outputs();
    assert_eq!(outputs["text"], Value::from("Hello world"));
    assert_eq!((&outputs["finish_reason"], &outputs["reasoning_content"]), (&Value::from("stop"), &Value::from("hm")));
    assert_eq!(outputs["usage"].field("total_price"), Some(&Value::from(9.0)));
    assert_eq!(outputs["usage"].field("total_tokens"), Some(&Value::from(7)));
    let body = server.received().pop().unwrap().body;
    assert!(body.contains(r#""content":"Q bees {{ x }}""#), "braces that name nothing are text: {body}");
    assert!(body.contains("\"stream\":true"), "{body}");
    // Without a price the cost isn't known, and not nothing.
    let ran = run_in(reaching(&server), &one(LLM, &["usage"]), Inputs::new()).await;
    assert_eq!(ran.outputs()["usage"].field("total_price"), Some(&Value::Null));
}

/// Promise 25: what a model wrote is never rendered again as a template.
#[tokio::test]
async fn what_a_model_wrote_is_never_a_template() {
    let server = model("{{ 7 * 7 }} {{#start.q#}} {% raw %}").await;
    let document = format!(
        "version: '0.1.0'\nnodes:\n  - {{id: start, data: {{type: start, variables: [{{variable: q, type: string}}]}}}}\n  - id: llm\n    data: {{{}}}\n  \
         - id: again\n    data: {{type: llm, model: {{provider: openai}}, prompt_template: [{{role: user, text: 'say {{{{#llm.text#}}}}'}}]}}\n  \
         - id: t\n    data: {{type: template-transform, template: '[{{{{ x }}}}]', variables: [{{variable: x, value_selector: [llm, text]}}]}}\n  \
         - id: end\n    data: {{type: end, outputs: [{{variable: t, value_selector: [t, output]}}]}}\n\
         edges: [{{source: start, target: llm}}, {{source: llm, target: again}}, {{source: again, target: t}}, {{source: t, target: end}}]\n",
        "type: llm, model: {provider: openai}, prompt_template: [{role: user, text: hi}]"
    );
    let ran = run_in(reaching(&server), &document, inputs([("q", "SECRET".into())])).await;
    assert_eq!(ran.outputs()["t"], Value::from("[{{ 7 * 7 }} {{#start.q#}} {% raw %}]"));
    let second = server.received().pop().unwrap().body;
    assert!(second.contains("say {{ 7 * 7 }} {{#start.q#}} {% raw %}") && !second.contains("SECRET"), "{second}");
}

#[tokio::test]
async fn an_answer_of_a_form_is_data_or_an_error() {
    let form = format!(
        "{LLM}\nstructured_output_enabled: true\nstructured_output: {{schema: {{type: object, properties: {{age: {{type: number}}}}}}}}"
    );
    let server = model("{\"age\": 3}").await;
    let ran = run_in(reaching(&server), &one(&form, &["structured_output"]), Inputs::new()).await;
    assert_eq!(show(&ran.outputs()["structured_output"]), r#"{"age":3}"#);
    assert!(server.received()[0].body.contains("json_schema"));
    let broken = model("{\"age\": ").await;
    let ran = run_in(reaching(&broken), &one(&form, &["structured_output"]), Inputs::new()).await;
    assert!(ran.error().contains("not the JSON that was asked for"), "{}", ran.error());
}

#[tokio::test]
async fn pictures_context_and_memory_reach_the_model() {
    let server = model("a cat").await;
    let node = "type: llm\nmodel: {provider: langgenius/openai/openai, name: small, completion_params: {temperature: 0.5, response_format: json_object, max_tokens: 9}}\n\
        prompt_template: [{role: system, text: 'Use {{#context#}}.'}, {role: user, text: look}]\n\
        context: {enabled: true, variable_selector: [start, q]}\n\
        memory: {enabled: true, variable_selector: [start, file, said], window_size: 1}\n\
        vision: {enabled: true, configs: {variable_selector: [start, file, picture], detail: low}}";
    let picture = Value::map([("mime_type", "image/png".into()), ("content", Value::Bytes(vec![0]))]);
    let said = |text: &str| Value::map([("role", "assistant".into()), ("content", text.into())]);
    let file = Value::map([("picture", picture), ("said", Value::List(vec![said("older"), said("newer")]))]);
    let ran =
        run_in(reaching(&server), &one(node, &["text"]), inputs([("q", "the facts".into()), ("file", file)])).await;
    assert_eq!(ran.outputs()["text"], Value::from("a cat"));
    let body = from_json(server.received()[0].body.as_bytes()).unwrap();
    assert_eq!(
        show(body.field("messages").unwrap()),
        r#"[{"content":"Use the facts.","role":"system"},{"content":"newer","role":"assistant"},{"content":[{"text":"look","type":"text"},{"image_url":{"detail":"low","url":"data:image/png;base64,AA=="},"type":"image_url"}],"role":"user"}]"#
    );
    assert_eq!(
        (show(&body.field("response_format").unwrap().clone()), body.field("max_tokens")),
        (r#"{"type":"json_object"}"#.to_owned(), Some(&Value::from(9)))
    );
}

#[tokio::test]
async fn a_provider_that_asks_for_patience_gets_it() {
    let calls = Mutex::new(0);
    let server = Server::start(move |_| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        if *calls < 3 { reply(429, &[("retry-after", "0")], "slow down") } else { json(200, &said("patience")) }
    })
    .await;
    let ran = run_in(reaching(&server), &one(LLM, &["text"]), Inputs::new()).await;
    assert_eq!(ran.outputs()["text"], Value::from("patience"));
    assert_eq!(server.received().len(), 3);
    // Not for ever, and not for an hour.
    for wait in ["0", "3600"] {
        let server = Server::start(move |_| reply(429, &[("retry-after", wait)], "slow down")).await;
        let ran = run_in(reaching(&server), &one(LLM, &["text"]), Inputs::new()).await;
        assert!(ran.error().contains("429"), "{}", ran.error());
    }
}

#[tokio::test]
async fn a_model_that_fails_fails_the_node() {
    for (steps, error) in [
        (reply(500, &[], "boom"), "answered 500: boom"),
        (vec![], "failed"),
        (json(200, "{\"choices\": [nonsense"), "can't be read"),
        (events(&[r#"{"choices":[{"delta":{"content":"half"}}]}"#]), "ended before the answer did"),
    ] {
        let server = Server::start(move |_| steps.clone()).await;
        let ran = run_in(reaching(&server), &one(LLM, &["text"]), Inputs::new()).await;
        assert!(ran.error().contains(error), "{error}: {}", ran.error());
    }
}

/// One tool that says what it was asked.
struct Search;

#[async_trait]
impl ToolServer for Search {
    async fn tools(&self) -> Result<Vec<ToolSpec>, McpError> {
        let schema = Value::map([("type", "object".into())]);
        Ok(vec![ToolSpec { name: "search".to_owned(), description: "Searches.".to_owned(), schema }])
    }

    async fn call(&self, tool: &str, arguments: &Value, _key: Option<&str>) -> Result<ToolOutput, McpError> {
        let q = arguments.field("q").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{tool}:{q}");
        Ok(ToolOutput { text, content: vec![], structured: Some(1.into()), is_error: q == "fail" })
    }
}

fn with_search(server: &Server) -> OutsideConfig {
    let config = reaching(server);
    config.servers.add("mock", Arc::new(Search));
    config
}

fn calling(name: &str, arguments: &str) -> String {
    let arguments = to_json(&Value::from(arguments)).unwrap();
    format!(
        r#"{{"choices":[{{"message":{{"content":"","tool_calls":[{{"id":"c1","type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}]}},"finish_reason":"tool_calls"}}],"usage":{{"prompt_tokens":1,"completion_tokens":1}}}}"#
    )
}

const AGENT: &str = "type: agent\nmodel: {provider: openai, name: small}\nsystem_prompt: Help.\nquery: '{{#start.q#}}'\nmax_iterations: 3\ntools: {mcp_server_refs: [mock]}";

/// Answers in turn, the last one for ever.
async fn in_turn(answers: Vec<String>) -> Server {
    let turn = Mutex::new(0);
    Server::start(move |_| {
        let mut turn = turn.lock().unwrap();
        let answer = answers[(*turn).min(answers.len() - 1)].clone();
        *turn += 1;
        json(200, &answer)
    })
    .await
}

#[tokio::test]
async fn an_agent_calls_tools_until_it_has_an_answer() {
    let server = in_turn(vec![calling("search", r#"{"q":"rust"}"#), said("done")]).await;
    let ran = run_in(
        with_search(&server),
        &one(AGENT, &["text", "iterations", "tool_calls", "tool_calls_count"]),
        inputs([("q", "how?".into())]),
    )
    .await;
    assert_eq!(
        show(&Value::Map(ran.outputs().clone())),
        r#"{"iterations":2,"text":"done","tool_calls":[{"arguments":{"q":"rust"},"is_error":false,"iteration":0,"result":"search:rust","tool":"search"}],"tool_calls_count":1}"#
    );
    assert_eq!(ran.streamed(), "done");
    assert_eq!(ran.audit, ["Model n openai small", "Tool n mock search", "Model n openai small"]);
    let last = server.received().pop().unwrap().body;
    assert!(last.contains(r#"{"content":"search:rust","role":"tool","tool_call_id":"c1"}"#), "{last}");
}

/// The issue's bad inputs: an unknown tool, broken arguments, a tool that fails, a model that never stops.
#[tokio::test]
async fn what_goes_wrong_with_tools_is_told_to_the_model() {
    for (call, result) in [
        (calling("nothing", "{}"), "tool 'nothing' not found"),
        (calling("search", "{\"q\":"), "the arguments are not JSON"),
        (calling("search", r#"{"q":"fail"}"#), "search:fail"),
    ] {
        let server = in_turn(vec![call, said("recovered")]).await;
        let ran = run_in(with_search(&server), &one(AGENT, &["text", "tool_calls"]), Inputs::new()).await;
        assert_eq!(ran.outputs()["text"], Value::from("recovered"));
        let log = show(&ran.outputs()["tool_calls"]);
        assert!(log.contains(result) && log.contains("\"is_error\":true"), "{log}");
    }
    let server = in_turn(vec![calling("search", "{}")]).await;
    let ran = run_in(with_search(&server), &one(AGENT, &["iterations", "tool_calls_count"]), Inputs::new()).await;
    assert_eq!(show(&Value::Map(ran.outputs().clone())), r#"{"iterations":3,"tool_calls_count":2}"#);
    assert!(!server.received()[2].body.contains("\"tools\""), "the last turn has no tools");
}

#[tokio::test]
async fn an_agent_without_function_calls_reacts() {
    let server = in_turn(vec![
        said("Thought: look\nAction: search\nAction Input: {\"q\": \"bees\"}"),
        said("Thought: good\nFinal Answer: six legs"),
    ])
    .await;
    let node = AGENT.replace("max_iterations: 3", "strategy: ReAct");
    let ran =
        run_in(with_search(&server), &one(&node, &["text", "tool_calls_count"]), inputs([("q", "legs?".into())])).await;
    assert_eq!(
        (&ran.outputs()["text"], &ran.outputs()["tool_calls_count"]),
        (&Value::from("six legs"), &Value::from(1))
    );
    let last = server.received().pop().unwrap().body;
    assert!(last.contains("Observation: search:bees") && !last.contains("\"tools\""), "{last}");
}

#[tokio::test]
async fn a_tool_is_called_with_what_the_document_says() {
    let server = model("").await;
    let node = "type: tool\nmcp_server_ref: mock\ntool_name: search\narguments: {q: 'about {{#start.q#}}', n: 3}";
    let ran = run_in(with_search(&server), &one(node, &["result", "json"]), inputs([("q", "bees".into())])).await;
    assert_eq!(show(&Value::Map(ran.outputs().clone())), r#"{"json":[1],"result":"search:about bees"}"#);
    let exported = "type: tool\nprovider_id: mock\ntool_name: search\ntool_parameters: {q: {type: mixed, value: '{{#start.q#}}'}}\ntool_configurations: {x: 1}";
    let ran = run_in(with_search(&server), &one(exported, &["text"]), inputs([("q", "bees".into())])).await;
    assert_eq!(ran.outputs()["text"], Value::from("search:bees"));
    let ran =
        run_in(with_search(&server), &one(&node.replace("about {{#start.q#}}", "fail"), &["text"]), Inputs::new())
            .await;
    assert!(ran.error().contains("the tool \"search\" failed"), "{}", ran.error());
}

#[tokio::test]
async fn a_question_leaves_by_its_class() {
    let node = "type: question-classifier\nmodel: {provider: openai, name: small}\nquery_variable_selector: [start, q]\ncategories: [{category_id: a, category_name: Apples}, {category_id: b, category_name: Bees}]";
    let document = one(node, &["category_id", "class_name"])
        .replace("source: n, target: end", "source: n, target: end, sourceHandle: b");
    for text in ["{\"category_id\":\"b\"}", "```json\n{\"category_id\": \"b\"}\n```", "b", "Bees"] {
        let server = Server::start(move |_| json(200, &said(text))).await;
        let ran = run_in(reaching(&server), &document, inputs([("q", "honey".into())])).await;
        assert_eq!(show(&Value::Map(ran.outputs().clone())), r#"{"category_id":"b","class_name":"Bees"}"#, "{text}");
    }
    let server = model("I think bees").await;
    let ran = run_in(reaching(&server), &document, Inputs::new()).await;
    assert!(ran.error().contains("Failed to parse question-classifier response: I think bees"), "{}", ran.error());
    let server = model("elsewhere").await;
    let default = document.replace("sourceHandle: b", "sourceHandle: default");
    let ran = run_in(reaching(&server), &default, Inputs::new()).await;
    assert_eq!(ran.outputs()["category_id"], Value::from("default"));
}

#[tokio::test]
async fn parameters_are_found_by_function_or_by_text() {
    let node = "type: parameter-extractor\nmodel: {provider: openai, name: small}\nquery: [start, q]\nreasoning_mode: MODE\nparameters: [{name: city, type: string, required: true}, {name: days, type: number}, {name: tags, type: 'array[string]'}]";
    for (mode, answer) in [
        ("function_call", calling("extract_parameters", r#"{"city": "Rome", "days": "3"}"#)),
        ("prompt", said("Here: {\"city\": \"Rome\", \"days\": 3}")),
    ] {
        let server = in_turn(vec![answer]).await;
        let ran = run_in(
            reaching(&server),
            &one(&node.replace("MODE", mode), &["city", "days", "tags", "__is_success"]),
            Inputs::new(),
        )
        .await;
        assert_eq!(
            show(&Value::Map(ran.outputs().clone())),
            r#"{"__is_success":1,"city":"Rome","days":3,"tags":[]}"#,
            "{mode}"
        );
    }
    for (answer, reason) in [("no idea", "the answer has no JSON"), ("{\"days\": 1}", "Parameter city is required")] {
        let server = Server::start(move |_| json(200, &said(answer))).await;
        let ran = run_in(
            reaching(&server),
            &one(&node.replace("MODE", "prompt"), &["city", "__is_success", "__reason"]),
            Inputs::new(),
        )
        .await;
        assert_eq!(
            (&ran.outputs()["__is_success"], &ran.outputs()["__reason"]),
            (&Value::from(0), &Value::from(reason))
        );
    }
}

#[tokio::test]
async fn a_knowledge_base_is_asked() {
    let server = Server::start(|received: &Received| {
        let score = if received.body.contains("\"two\"") { 0.9 } else { 0.5 };
        json(
            200,
            &format!(r#"{{"records":[{{"content":"c{score}","title":"t","score":{score},"metadata":{{"page":1}}}}]}}"#),
        )
    })
    .await;
    let mut config = OutsideConfig::at(SecurityLevel::Strict);
    config.knowledge.insert("*".to_owned(), Knowledge { url: server.url("/kb"), api_key: Some("kb-canary-9".into()) });
    let node = "type: knowledge-retrieval\nquery_variable_selector: [start, q]\ndataset_ids: [one, two]\nmultiple_retrieval_config: {top_k: 2}";
    let ran = run_in(config, &one(node, &["result"]), inputs([("q", "bees".into())])).await;
    assert_eq!(
        show(&ran.outputs()["result"]),
        r#"[{"content":"c0.9","metadata":{"page":1,"score":0.9},"title":"t"},{"content":"c0.5","metadata":{"page":1,"score":0.5},"title":"t"}]"#
    );
    let received = &server.received()[0];
    assert_eq!(
        (received.path.as_str(), received.headers["authorization"].as_str()),
        ("/kb/retrieval", "Bearer kb-canary-9")
    );
}

/// F11: each limit stops the run with an error that names it.
#[tokio::test]
async fn limits_are_named_when_they_are_reached() {
    let quotas = |quotas: Quotas, server: &Server| {
        let mut config = with_search(server);
        config.quotas = quotas;
        config
    };
    let server = in_turn(vec![calling("search", "{}")]).await;
    for (limit, error) in [
        (Quotas { tokens: Some(3), ..Quotas::default() }, "the limit of 3 tokens is reached"),
        (Quotas { tool_calls: Some(1), ..Quotas::default() }, "the limit of 1 tool calls is reached"),
        (
            Quotas { cost: Some(0.1), ..Quotas::default() },
            "there is a cost limit, and no price for the model \"small\"",
        ),
    ] {
        let ran = run_in(quotas(limit, &server), &one(AGENT, &["text"]), Inputs::new()).await;
        assert!(ran.error().contains(error), "{}", ran.error());
        assert!(ran.audit.last().unwrap().starts_with("Refused n"), "{:?}", ran.audit);
    }
    let limit = Quotas { output: Some(10), ..Quotas::default() };
    let long = model("much more than ten bytes").await;
    let ran = run_in(quotas(limit, &long), &one(LLM, &["text"]), Inputs::new()).await;
    assert!(ran.error().contains("the limit of 10 bytes"), "{}", ran.error());
}

/// Promise 26, for what there is: errors, events, audit. The canary is a key, a credential and a named secret.
#[tokio::test]
async fn secrets_are_in_no_error_event_or_audit_line() {
    let server = Server::start(|received: &Received| reply(400, &[], format!("bad {received:?}"))).await;
    let config = || {
        let mut config = reaching(&server);
        config.secrets.push(("token".to_owned(), SecretString::from("named-canary-1")));
        config
    };
    let http = format!(
        "type: http-request\nmethod: POST\nfail_on_error_status: true\nurl: '{}?k=named-canary-1'\nauthorization: {{type: basic_auth, username: u, password: named-canary-1}}\nbody: {{type: raw-text, data: named-canary-1}}",
        server.url("/")
    );
    let code = "type: code\nlanguage: javascript\ncode: 'function main() { throw new Error(\"named-canary-1 \" + btoa(\"x:named-canary-1\")) }'".to_owned();
    let command = "type: command\ncommand: [sh, -c, 'echo named-canary-1 >&2; exit 1']".to_owned();
    for node in [LLM.to_owned(), http, code, command] {
        let ran = run_in(config(), &one(&node, &["text"]), Inputs::new()).await;
        let all = format!("{} {:?} {:?}", ran.error(), ran.events, ran.audit);
        assert!(!all.contains("canary"), "{all}");
        // In base64, at any offset, it would have one of these.
        for piece in ["bmFtZWQtY2FuYXJ5", "YW1lZC1jYW5hcnkt", "1lZC1jYW5hcnkt"] {
            assert!(!all.contains(piece), "{piece}: {all}");
        }
    }
}

/// Whatever a node says of its failure, a bounded part of it is kept and told, without the beginning of a secret at its end.
#[tokio::test]
async fn errors_are_cut_where_they_are_kept() {
    let server = Server::start(|_: &Received| reply(400, &[], "x".repeat(1 << 20))).await;
    let http = format!("type: http-request\nfail_on_error_status: true\nurl: '{}'", server.url("/"));
    let code = "type: code\nlanguage: javascript\ncode: 'function main() { throw new Error(\"x\".repeat(100 << 20)) }'";
    let command = "type: command\ncommand: [sh, -c, 'head -c 1000000 /dev/zero | tr \"\\0\" x >&2; exit 1']";
    for node in [http.as_str(), code, command] {
        let ran = run_in(reaching(&server), &one(node, &["text"]), Inputs::new()).await;
        assert!(
            ran.error().len() < 5000 && ran.error().contains("more bytes were cut"),
            "{node}: {}",
            ran.error().len()
        );
        assert!(format!("{:?} {:?}", ran.events, ran.audit).len() < 20_000, "{node}");
    }
    // The canary stands where the message is cut, wherever exactly that is.
    let code = "type: code\nlanguage: javascript\ncode: 'function main() { throw new Error(\"x\".repeat(3900) + \"named-canary-1 \".repeat(100)) }'";
    let mut config = reaching(&server);
    config.secrets.push(("token".to_owned(), SecretString::from("named-canary-1")));
    let ran = run_in(config, &one(code, &["text"]), Inputs::new()).await;
    assert!(ran.error().contains("more bytes were cut"), "{}", ran.error());
    assert!(!ran.error().contains("name") && !ran.error().contains("canary"), "{}", ran.error());
}

#[tokio::test]
async fn at_strict_no_program_is_run() {
    let server = model("").await;
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    let document = one(&format!("type: command\ncommand: [touch, {:?}]", made.to_str().unwrap()), &["stdout"]);
    let ran = run_in(OutsideConfig::at(SecurityLevel::Strict), &document, Inputs::new()).await;
    assert!(matches!(ran.ended, Err(FlowError::Needs(_))), "before anything runs: {:?}", ran.ended);
    assert!(!made.exists());
    let tool = "type: tool\nmcp_server: {name: x, transport: stdio, command: touch, args: [x]}\ntool_name: t";
    let ran = run_in(OutsideConfig::at(SecurityLevel::Strict), &one(tool, &["text"]), Inputs::new()).await;
    assert!(matches!(ran.ended, Err(FlowError::Needs(_))), "{:?}", ran.ended);
    let ran = run_in(reaching(&server), &document, Inputs::new()).await;
    ran.outputs();
    assert!(made.exists(), "the control");
    assert_eq!(ran.audit, ["Command n touch"]);
}

/// A program under the same sandbox as code, if the policy says so.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_program_is_shut_in_if_the_policy_says_so() {
    let document = one("type: command\ncommand: [cat, /etc/passwd]\nallow_failure: true", &["stdout", "exit_code"]);
    let ran = run_in(OutsideConfig::default(), &document, Inputs::new()).await;
    assert_eq!(ran.outputs()["exit_code"], Value::from(0), "the control");
    let mut config = OutsideConfig::default();
    config.command_sandbox = Some(piton_process::Sandbox::for_command());
    let ran = run_in(config, &document, Inputs::new()).await;
    assert_eq!((&ran.outputs()["exit_code"], &ran.outputs()["stdout"]), (&Value::from(1), &Value::from("")));
}

#[cfg(unix)]
#[test]
fn the_audit_log_is_lines_that_only_its_owner_reads() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let entry = AuditEntry {
        at: piton_types::Timestamp::from_millis(0),
        run: "a-run".parse().unwrap(),
        step: "n".parse().unwrap(),
        kind: piton_flow::AuditKind::Http,
        detail: "GET example.com\n{\"forged\": true}".to_owned(),
    };
    for _ in 0..2 {
        piton_flow::AuditFile::open(&path).unwrap().record(&entry).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 2, "a line break in an entry doesn't make a line");
    let line: BTreeMap<String, Value> =
        piton_types::from_value(from_json(text.lines().next().unwrap().as_bytes()).unwrap()).unwrap();
    assert_eq!((line["kind"].as_str(), line["run"].as_str()), (Some("http"), Some("a-run")));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(piton_flow::AuditFile::open(&path).is_err(), "others could read it");
}
