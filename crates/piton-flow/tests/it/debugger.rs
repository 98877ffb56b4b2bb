//! The port of a debugger: where it is asked, what it may set, and that a run that was left goes on.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use piton_flow::{
    Debugger, FlowOptions, Format, Moment, Phase, RunOutcome, Selector, StartFlow, Then, VariablePool, When,
    resume_durable, run_durable,
};
use piton_runtime::Context;
use piton_types::{RunStatus, Value};

use crate::support::{inputs, memory, process};

const FLOW: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: n, type: number}]}}
  - {id: left, data: {type: template-transform, template: 'l{{ n }}', variables: [{variable: n, value_selector: [in, n]}]}}
  - {id: right, data: {type: template-transform, template: 'r{{ n }}', variables: [{variable: n, value_selector: [in, n]}]}}
  - {id: out, data: {type: end, outputs: [{variable: l, value_selector: [left, output]}, {variable: r, value_selector: [right, output]}]}}
edges:
  - {source: in, target: left}
  - {source: in, target: right}
  - {source: left, target: out}
  - {source: right, target: out}
";

/// Notes every moment; sets variables at one, and leaves the run at another.
#[derive(Debug, Default)]
struct Hand {
    seen: Mutex<Vec<String>>,
    sets: Option<(&'static str, &'static str, i64)>,
    leaves: Option<&'static str>,
}

fn word(moment: &Moment<'_>) -> String {
    let side = if moment.phase == Phase::Before { "before" } else { "after" };
    format!("{side} {}", moment.step)
}

#[async_trait]
impl Debugger for Hand {
    fn stops(&self, _moment: &Moment<'_>) -> bool {
        true
    }

    async fn stopped(&self, mut moment: Moment<'_>) -> Then {
        let word = word(&moment);
        self.seen.lock().unwrap().push(word.clone());
        if let Some((_, name, value)) = self.sets.filter(|(at, ..)| *at == word) {
            let selector = Selector::new(name.split('.').map(str::to_owned).collect()).unwrap();
            moment.set(vec![(selector.clone(), value.into())]).await.unwrap();
            assert_eq!(moment.variables.find(&selector), Some(&value.into()), "it is seen at once");
        }
        if self.leaves == Some(&word) { Then::Leave } else { Then::GoOn }
    }
}

async fn start(context: &Context, hand: &Arc<Hand>) -> RunOutcome {
    let start = StartFlow {
        document: FLOW.to_owned(),
        format: Format::Yaml,
        inputs: inputs([("n", 1.into())]),
        system: Default::default(),
        conversation: Default::default(),
        id: Some("a-run".parse().unwrap()),
        name: "flow".to_owned(),
        folder: None,
        labels: Default::default(),
        priority: 0,
        estimated_complexity: None,
        config: None,
        options: FlowOptions { debugger: Some(Arc::clone(hand) as _), ..FlowOptions::default() },
    };
    run_durable(context, start).await.unwrap()
}

fn given(outcome: &RunOutcome) -> (Option<&Value>, Option<&Value>) {
    (outcome.outputs.get("l"), outcome.outputs.get("r"))
}

/// Under a debugger nodes run one at a time, and it is asked on both sides of each.
#[tokio::test]
async fn it_is_asked_before_and_after_each_node_one_at_a_time() {
    let hand = Arc::new(Hand { sets: Some(("before right", "in.n", 7)), ..Hand::default() });
    let outcome = start(&process(&memory()), &hand).await;
    assert_eq!(given(&outcome), (Some(&"l1".into()), Some(&"r7".into())));
    let seen = hand.seen.lock().unwrap().join(", ");
    assert_eq!(seen, "before in, after in, before left, after left, before right, after right, before out, after out");
}

/// R8, decision 3: a process that is left, or dies, at a stop loses nothing of what was done and set by then; nothing
/// finished is asked about again.
#[tokio::test]
async fn a_run_that_is_left_goes_on_in_another_process_with_what_was_set() {
    for leaves in ["before out", "after right"] {
        let store = memory();
        let hand = Arc::new(Hand { sets: Some(("after in", "in.n", 5)), leaves: Some(leaves), ..Hand::default() });
        let outcome = start(&process(&store), &hand).await;
        assert_eq!((outcome.status, outcome.stopped), (RunStatus::Paused, None), "{leaves}");

        let next = Arc::new(Hand::default());
        let options = FlowOptions { debugger: Some(Arc::clone(&next) as _), ..FlowOptions::default() };
        let outcome = resume_durable(&process(&store), &"a-run".parse().unwrap(), options).await.unwrap();
        assert_eq!(given(&outcome), (Some(&"l5".into()), Some(&"r5".into())));
        assert_eq!(*next.seen.lock().unwrap(), ["before out", "after out"]);
    }
}

/// A run that is left behind its last node isn't over.
#[tokio::test]
async fn a_run_that_is_left_after_its_last_node_is_paused() {
    let store = memory();
    let hand = Arc::new(Hand { leaves: Some("after out"), ..Hand::default() });
    assert_eq!(start(&process(&store), &hand).await.status, RunStatus::Paused);
    let outcome = resume_durable(&process(&store), &"a-run".parse().unwrap(), FlowOptions::default()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
}

#[test]
fn conditions_on_one_line_are_those_of_documents() {
    let mut pool = VariablePool::default();
    pool.set_scope("a", [("n".to_owned(), 7.into()), ("text".to_owned(), "two words".into())].into());
    for met in
        ["a.n > 5", "a.n = 7", "a.text contains two", "a.text is two words", "a.text is not empty", "a.gone not exists"]
    {
        assert!(met.parse::<When>().unwrap().is_met(&pool), "{met}");
    }
    for unmet in ["a.n < 5", "a.text is empty", "a.text > 5", "a.gone > 1"] {
        assert!(!unmet.parse::<When>().unwrap().is_met(&pool), "{unmet}");
    }
    for (wrong, why) in [
        ("", "a condition"),
        ("n > 5", "NODE.VARIABLE"),
        ("a.n", "operator"),
        ("a.n nearly 5", "operator"),
        ("a.n matches (", ""),
    ] {
        let error = wrong.parse::<When>().unwrap_err();
        assert!(error.contains(why) && !error.is_empty(), "{wrong}: {error}");
    }
}
