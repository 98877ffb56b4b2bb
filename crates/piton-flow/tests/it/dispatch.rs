//! Which node runs when, what is told of it and in which order, and what happens when a listener is slow or the
//! caller that waits gives up.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use piton_flow::{
    Build, Built, Document, Effect, EventSink, Flow, FlowError, Format, Host, Kinds, Limits, NoJournal, Node,
    NodeContext, NodeError, NodeOutput, Outside, OutsideConfig, Services, run,
};
use piton_testing::ManualClock;
use piton_types::{Event, Value};
use tokio_util::sync::CancellationToken;

use crate::support::{Counter, inputs, tell};

/// A kind that waits `after` seconds and then says its `pieces`, one a second.
#[derive(Debug)]
struct Speaker {
    after: u64,
    pieces: Vec<String>,
}

fn speaker(build: &Build<'_>) -> Built {
    let pieces = build.field("pieces")?.unwrap_or_default();
    Ok(Box::new(Speaker { after: build.field("after")?.unwrap_or_default(), pieces }))
}

#[async_trait]
impl Node for Speaker {
    async fn run(&self, _inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        tokio::time::sleep(Duration::from_secs(self.after)).await;
        for piece in &self.pieces {
            tokio::time::sleep(Duration::from_secs(1)).await;
            context.text("text", piece).await;
        }
        Ok(NodeOutput::of([("text", Value::from(self.pieces.concat()))]))
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }
}

fn flow(text: &str) -> Flow {
    let document = Document::parse(text, Format::Yaml).unwrap();
    Flow::build(&document, &Kinds::builtin().with("speaker", speaker)).unwrap()
}

/// What is told of a run with these services.
async fn told(text: &str, services: &Services) -> Vec<Event> {
    let events = Mutex::new(Vec::new());
    let listen = |event: &Event| events.lock().unwrap().push(event.clone());
    let (journal, clock, ids) = (NoJournal::new("a-run".parse().unwrap()), ManualClock::default(), Counter::default());
    let host = Host { events: EventSink::Call(&listen), services, ..Host::new(&journal, &clock, &ids) };
    run(&flow(text), inputs([]), &host).await.unwrap();
    events.into_inner().unwrap()
}

fn answers(events: &[Event]) -> Vec<String> {
    let piece = |event: &Event| match event {
        Event::Answer { step, text, .. } => Some(format!("{step}: {text}")),
        _ => None,
    };
    events.iter().filter_map(piece).collect()
}

const TWO_ANSWERS: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: slow, data: {type: speaker, after: 10, pieces: [a, b]}}
  - {id: quick, data: {type: speaker, pieces: [c, d]}}
  - {id: first, data: {type: answer, answer: '<{{#slow.text#}}|{{#quick.text#}}>'}}
  - {id: second, data: {type: answer, answer: 'and {{#quick.text#}}'}}
edges:
  - {source: in, target: slow}
  - {source: in, target: quick}
  - {source: slow, target: first}
  - {source: quick, target: first}
  - {source: first, target: second}
";

/// F9: an answer is told piece by piece as it is made, but in its own order: what was said too early waits for its turn.
#[tokio::test(start_paused = true)]
async fn streamed_answers_come_in_order() {
    let events = told(TWO_ANSWERS, &Services::default()).await;
    let said = answers(&events);
    assert_eq!(said[..3], ["first: <", "first: a", "first: b"], "{said:?}");
    let of = |step: &str| -> String { said.iter().filter_map(|piece| piece.strip_prefix(step)).collect() };
    assert_eq!((of("first: "), of("second: ")), ("<ab|cd>".to_owned(), "and cd".to_owned()));
    let quick = events.iter().position(|event| matches!(event, Event::StepText { text, .. } if text == "d")).unwrap();
    let slow = events.iter().position(|event| matches!(event, Event::StepText { text, .. } if text == "a")).unwrap();
    assert!(quick < slow, "what is quick was told as text of its node at once");
}

/// Promise 26: a secret that is said piece by piece is in no piece of the node's text, nor of an answer.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_streamed_in_pieces_is_in_no_event() {
    let text = "
nodes:
  - {id: in, data: {type: start}}
  - {id: a, data: {type: speaker, pieces: ['say can', 'ary-', 'song', ' and can']}}
  - {id: out, data: {type: answer, answer: '[{{#a.text#}}]'}}
edges: [{source: in, target: a}, {source: a, target: out}]
";
    let mut config = OutsideConfig::default();
    config.secrets = vec![("BIRD".to_owned(), "canary-song".into())];
    let services = Outside::new(config).unwrap().install(Services::default());
    let events = told(text, &services).await;
    let said: String = events
        .iter()
        .filter_map(|event| match event {
            Event::StepText { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(said, "say [secret:BIRD] and can");
    let answer: String = answers(&events).iter().filter_map(|piece| piece.strip_prefix("out: ")).collect();
    assert_eq!(answer, "[say [secret:BIRD] and can]");
}

const LINE: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: a, data: {type: template-transform, template: a}}
  - {id: b, data: {type: template-transform, template: b}}
  - {id: out, data: {type: end}}
edges: [{source: in, target: a}, {source: a, target: b}, {source: b, target: out}]
";

/// A listener that has a channel and doesn't read holds the run up instead of filling the memory; nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_listener_that_is_behind_holds_the_run_up() {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let (journal, clock, ids) = (NoJournal::new("a-run".parse().unwrap()), ManualClock::default(), Counter::default());
    let host = Host { events: EventSink::Channel(&sender), ..Host::new(&journal, &clock, &ids) };
    let flow = flow(LINE);
    let mut running = std::pin::pin!(run(&flow, inputs([]), &host));
    for _ in 0..3 {
        let waited = tokio::time::timeout(Duration::from_secs(3600), running.as_mut()).await;
        assert!(waited.is_err(), "it goes no further than the channel is long");
        assert_eq!(receiver.len(), 1);
    }
    let mut events = Vec::new();
    let ended = loop {
        tokio::select! {
            ended = running.as_mut() => break ended,
            Some(event) = receiver.recv() => events.push(tell(&event)),
        }
    };
    ended.unwrap();
    while let Ok(event) = receiver.try_recv() {
        events.push(tell(&event));
    }
    let steps = ["in", "a", "b", "out"].iter().flat_map(|step| [format!("begun {step}"), format!("finished {step}")]);
    let expected: Vec<String> =
        ["started false".to_owned()].into_iter().chain(steps).chain(["succeeded".to_owned()]).collect();
    assert_eq!(events, expected);
}

/// The run doesn't wait for a listener that has gone away.
#[tokio::test]
async fn a_listener_that_went_away_is_not_waited_for() {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    drop(receiver);
    let (journal, clock, ids) = (NoJournal::new("a-run".parse().unwrap()), ManualClock::default(), Counter::default());
    let host = Host { events: EventSink::Channel(&sender), ..Host::new(&journal, &clock, &ids) };
    run(&flow(LINE), inputs([]), &host).await.unwrap();
}

/// A run that is cancelled ends at once, whatever its nodes do, and says that it was.
#[tokio::test(start_paused = true)]
async fn a_cancelled_run_ends_at_once() {
    let text = "
nodes:
  - {id: in, data: {type: start}}
  - {id: long, data: {type: speaker, after: 1000000}}
  - {id: each, data: {type: sub-workflow, sub_graph: {nodes: [{id: s, type: start}, {id: l, data: {type: speaker, after: 1000000}}, {id: e, type: end}], edges: [{source: s, target: l}, {source: l, target: e}]}}}
  - {id: out, data: {type: end}}
edges: [{source: in, target: long}, {source: in, target: each}, {source: long, target: out}, {source: each, target: out}]
error_handler: {mode: recover, sub_graph: {nodes: [{id: s, data: {type: start}}, {id: e, data: {type: end}}], edges: [{source: s, target: e}]}}
";
    let (journal, clock, ids) = (NoJournal::new("a-run".parse().unwrap()), ManualClock::default(), Counter::default());
    let cancel = CancellationToken::new();
    let host = Host { cancel: cancel.clone(), ..Host::new(&journal, &clock, &ids) };
    let flow = flow(text);
    let began = tokio::time::Instant::now();
    let canceller = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(run(&flow, inputs([]), &host), canceller);
    assert!(matches!(ended, Err(FlowError::Cancelled)), "no handler recovers from it: {ended:?}");
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

/// F1: a run whose time is over is handled like one that failed: its handler sees what there was by then, and that it was
/// the time. It has a limit of its own.
#[tokio::test(start_paused = true)]
async fn a_run_whose_time_is_over_is_handled() {
    let text = |handling: u64| {
        format!(
            "
nodes:
  - {{id: in, data: {{type: start}}}}
  - {{id: quick, data: {{type: speaker, after: 1, pieces: [a]}}}}
  - {{id: long, data: {{type: speaker, after: 1000000}}}}
  - {{id: out, data: {{type: end}}}}
edges: [{{source: in, target: quick}}, {{source: quick, target: long}}, {{source: long, target: out}}]
error_handler:
  mode: recover
  sub_graph:
    nodes:
      - {{id: s, data: {{type: start}}}}
      - {{id: h, data: {{type: speaker, after: {handling}}}}}
      - {{id: e, data: {{type: end, outputs: [{{variable: kind, value_selector: [sys, error_type]}}, {{variable: got, value_selector: [quick, text]}}]}}}}
    edges: [{{source: s, target: h}}, {{source: h, target: e}}]
"
        )
    };
    for (handling, took) in [(5, 15), (1_000_000, 20)] {
        let (journal, clock, ids) =
            (NoJournal::new("a-run".parse().unwrap()), ManualClock::default(), Counter::default());
        let limits = Limits { max_time: Some(Duration::from_secs(10)), ..Limits::default() };
        let host = Host { limits, ..Host::new(&journal, &clock, &ids) };
        let began = tokio::time::Instant::now();
        let ended = run(&flow(&text(handling)), inputs([]), &host).await;
        assert_eq!(began.elapsed(), Duration::from_secs(took));
        match (handling, ended) {
            (5, Ok(finished)) => {
                assert_eq!(finished.outputs, inputs([("got", "a".into()), ("kind", "Timeout".into())]));
                assert!(finished.recovered_from.is_some());
            }
            (1_000_000, Err(FlowError::TooLong { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
}

const GATHER: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: a, data: {type: speaker, after: 1, pieces: [a]}}
  - {id: b, data: {type: speaker, after: 4, pieces: [b]}}
  - {id: c, data: {type: speaker, after: 100, pieces: [c]}}
  - {id: all, data: {type: gather, GATHER, variables: [[a, text], [b, text], [c, text]]}}
  - {id: out, data: {type: end, outputs: [{variable: got, value_selector: [all, results]}]}}
edges:
  - {source: in, target: a}
  - {source: in, target: b}
  - {source: in, target: c}
  - {source: a, target: all}
  - {source: b, target: all}
  - {source: c, target: all}
  - {source: all, target: out}
";

/// The time of a gather begins with its first branch. What isn't there when it is over is left out, and cancelled
/// unless the document says otherwise; then the run waits for it all the same.
#[tokio::test(start_paused = true)]
async fn a_gather_waits_no_longer_than_it_says() {
    let (journal, clock, ids) = (NoJournal::new("a-run".parse().unwrap()), ManualClock::default(), Counter::default());
    let host = Host::new(&journal, &clock, &ids);
    for (gather, got, seconds) in [
        ("join_mode: all", &["a", "b", "c"][..], 101),
        ("join_mode: all, timeout_secs: 10", &["a", "b"], 12),
        ("join_mode: all, timeout_secs: 1", &["a"], 3),
        ("join_mode: all, timeout_secs: 1, cancel_remaining: false", &["a"], 101),
        ("join_mode: any, timeout_secs: 1", &["a"], 2),
        ("join_mode: {type: n_of_m, n: 2}, timeout_secs: 50", &["a", "b"], 5),
        ("join_mode: {type: n_of_m, n: 3}, timeout_secs: 50", &["a", "b"], 52),
        ("join_mode: all, timeout_secs: 200", &["a", "b", "c"], 101),
    ] {
        let began = tokio::time::Instant::now();
        let ended = run(&flow(&GATHER.replace("GATHER", gather)), inputs([]), &host).await.unwrap();
        let got: Vec<Value> = got.iter().map(|text| Value::from(*text)).collect();
        assert_eq!(ended.outputs["got"], Value::List(got), "{gather}");
        assert_eq!(began.elapsed(), Duration::from_secs(seconds), "{gather}");
    }
    let fails = GATHER.replace("GATHER", "join_mode: all, timeout_secs: 1, timeout_strategy: fail");
    let ended = run(&flow(&fails), inputs([]), &host).await;
    assert!(
        matches!(&ended, Err(FlowError::Node { node, message }) if node.as_str() == "all" && message.contains("1 s")),
        "{ended:?}"
    );
}
