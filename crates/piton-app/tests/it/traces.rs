//! OpenTelemetry: what a collector gets of a run, and that nothing is sent unless the environment names one.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock};

use piton_app::runs::resume::{self, ResumeRun};
use piton_app::runs::start::{self, StartRun};
use piton_app::{App, Level, Surroundings};
use piton_testing::web::{Answer, Asked, Web};
use serde_json::{Value as Json, json};

use crate::{NoPerson, Page, drive};

const FLOW: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: items, type: array, required: true}]}}
  - {id: each, data: {type: iteration, iterator_selector: [in, items], output_selector: [work, output], start_node_id: begin}}
  - {id: begin, parentId: each, data: {type: iteration-start}}
  - {id: work, parentId: each, data: {type: template-transform, template: 'secret {{ item }}', variables: [{variable: item, value_selector: [each, item]}]}}
  - {id: try, data: {type: command, command: [test, -e, ready], retry_config: {retry_enabled: true, max_retries: 1, retry_interval: 1}}}
  - {id: out, data: {type: end, outputs: []}}
edges: [{source: in, target: each}, {source: begin, target: work}, {source: each, target: try}, {source: try, target: out}]
";

/// Where the collector of these tests is, for the environment of their apps.
static ADDRESS: OnceLock<String> = OnceLock::new();

fn with_collector(name: &str) -> Option<OsString> {
    match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => ADDRESS.get().map(OsString::from),
        "OTEL_EXPORTER_OTLP_HEADERS" => Some("x-team=red%20one".into()),
        "OTEL_SERVICE_NAME" => Some("nightly".into()),
        _ => None,
    }
}

fn with_no_address(name: &str) -> Option<OsString> {
    (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "127.0.0.1:4318".into())
}

fn with_no_one_there(name: &str) -> Option<OsString> {
    (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://127.0.0.1:1".into())
}

fn open(root: &std::path::Path, lookup: fn(&str) -> Option<OsString>) -> (App, Arc<Page>) {
    let folder = root.join("work");
    std::fs::create_dir_all(&folder).unwrap();
    let (folder, home) = (folder.canonicalize().unwrap(), root.canonicalize().unwrap().join("home"));
    let page = Arc::new(Page::default());
    let surroundings = Surroundings { folder, home: Some(home), ..Surroundings::default() };
    (App::new(Arc::clone(&page) as _, surroundings, lookup), page)
}

fn wanted(app: &App) -> StartRun {
    let document = app.folder().join("flow.yml");
    std::fs::write(&document, FLOW).unwrap();
    let items = piton_types::from_json(b"[1, 2]").unwrap();
    StartRun { id: Some("r".parse().unwrap()), inputs: [("items".to_owned(), items)].into(), ..StartRun::of(document) }
}

/// The spans of what a collector was sent.
fn spans(sent: &[Asked]) -> Vec<Json> {
    let all = sent.iter().flat_map(|asked| {
        let body: Json = serde_json::from_str(&asked.body).unwrap();
        let resource = &body["resourceSpans"][0];
        assert_eq!(
            resource["resource"]["attributes"][0],
            json!({"key": "service.name", "value": {"stringValue": "nightly"}})
        );
        resource["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    });
    all.collect()
}

fn attribute(span: &Json, key: &str) -> Json {
    let found = span["attributes"].as_array().unwrap().iter().find(|one| one["key"] == key);
    found.map_or(Json::Null, |one| one["value"].as_object().unwrap().values().next().unwrap().clone())
}

/// A run and its steps are spans of one trace, those of rounds below their container; a run that goes on is in the same
/// trace; values aren't sent. Without the variable nothing is.
#[tokio::test]
async fn runs_and_steps_are_spans_at_a_collector() {
    let sent: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let keep = Arc::clone(&sent);
    let collector = Web::start(move |asked| {
        keep.lock().unwrap().push(asked.clone());
        Answer::json("{}")
    });
    ADDRESS.set(collector.address.clone()).unwrap();
    let root = tempfile::tempdir().unwrap();
    let (silent, _) = open(&root.path().join("silent"), |_| None);
    let _ = drive(&silent, start::prepare(&silent, wanted(&silent)).await.unwrap()).await;
    assert!(sent.lock().unwrap().is_empty(), "nothing is sent that was not asked for");

    let (app, page) = open(root.path(), with_collector);
    let outcome = drive(&app, start::prepare(&app, wanted(&app)).await.unwrap()).await.unwrap();
    assert_eq!(serde_json::to_value(&outcome).unwrap()["status"], "failed");
    {
        let sent = sent.lock().unwrap();
        let head = sent[0].head.join("\n");
        assert!(head.contains("post /v1/traces") && head.contains("x-team: red one"), "{head}");
        let spans = spans(&sent);
        let named =
            |name: &str| spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name}: {spans:?}"));
        let run = named("flow.yml");
        assert_eq!((&run["status"]["code"], attribute(run, "piton.status")), (&json!(2), json!("failed")), "{run}");
        assert!(run.get("parentSpanId").is_none());
        let (each, tried) = (named("each"), named("try"));
        assert_eq!((&each["parentSpanId"], &tried["parentSpanId"]), (&run["spanId"], &run["spanId"]));
        let rounds: Vec<_> = spans.iter().filter(|span| span["name"] == "work").collect();
        assert_eq!(rounds.len(), 2);
        assert!(rounds.iter().all(|round| round["parentSpanId"] == each["spanId"]), "{rounds:?}");
        assert!(rounds.iter().any(|round| attribute(round, "piton.step") == "each/1/work"), "{rounds:?}");
        assert_eq!((&tried["events"][0]["name"], &tried["status"]["code"]), (&json!("retry"), &json!(2)), "{tried}");
        assert!(spans.iter().all(|span| span["traceId"] == run["traceId"]));
        assert!(spans.iter().all(|span| span["spanId"].as_str().unwrap().len() == 16));
        let time = |span: &Json, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(spans.iter().all(|span| time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano")));
        assert!(!format!("{spans:?}").contains("secret 1"), "what a step gave isn't sent");
    }
    let first = spans(&std::mem::take(&mut *sent.lock().unwrap()))[0]["traceId"].clone();
    std::fs::write(app.folder().join("ready"), "").unwrap();
    let ready = resume::prepare(&app, &ResumeRun::of("r".parse().unwrap()), &NoPerson).await.unwrap();
    assert_eq!(serde_json::to_value(drive(&app, ready).await.unwrap()).unwrap()["status"], "completed");
    let spans = spans(&sent.lock().unwrap());
    assert!(spans.iter().all(|span| span["traceId"] == first), "one trace for all that drive a run");
    assert!(spans.iter().all(|span| span["name"] != "each"), "what isn't done again is no span");
    assert!(page.0.lock().unwrap().iter().all(|(level, _)| *level != Level::Warning));
}

/// A collector that isn't there costs the run nothing but a warning; an address that is none is refused before it begins.
#[tokio::test]
async fn a_collector_that_is_away_keeps_no_run_from_its_end() {
    let root = tempfile::tempdir().unwrap();
    let (app, page) = open(root.path(), with_no_one_there);
    std::fs::write(app.folder().join("ready"), "").unwrap();
    let outcome = drive(&app, start::prepare(&app, wanted(&app)).await.unwrap()).await.unwrap();
    assert_eq!(serde_json::to_value(&outcome).unwrap()["status"], "completed");
    let warned = page.0.lock().unwrap().iter().filter(|(_, text)| text.starts_with("traces were lost")).count();
    assert_eq!(warned, 1);
    let (app, _) = open(root.path(), with_no_address);
    let failure =
        drive(&app, start::prepare(&app, StartRun { id: None, ..wanted(&app) }).await.unwrap()).await.unwrap_err();
    assert!(failure.message().contains("traces can't be sent"), "{failure}");
}
