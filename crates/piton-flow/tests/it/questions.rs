//! Questions to people in durable runs: asked in the log, answered from anywhere, each answer used once.

use std::sync::Arc;
use std::time::Duration;

use piton_flow::{
    AnswerError, FlowOptions, Format, RunOutcome, StartFlow, answer_question, open_questions, resume_durable,
    run_durable,
};
use piton_runtime::{Context, RunError, WholeHistory};
use piton_store::Store;
use piton_store_objects::ObjectStore;
use piton_testing::{CrashStore, Fault, ManualClock};
use piton_types::{RunId, RunStatus, Value};

use crate::support::{inputs, process_at};

/// One branch asks, another works.
const REVIEW: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: topic, required: true}]}}
  - {id: work, data: {type: command, command: [sh, -c, 'echo work >> ledger; echo done']}}
  - {id: review, data: {type: human-input, title: Review, prompt: 'Is {{#in.topic#}} good?', resume_mode: approval,
      variables: [
        {name: stars, type: number, required: true},
        {name: colour, type: select, options: [red, green], default: green},
        {name: note, type: string, label: A word or two}]}}
  - {id: good, data: {type: template-transform, template: '{{ stars }} {{ colour }}', variables: [
      {variable: stars, value_selector: [review, stars]}, {variable: colour, value_selector: [review, colour]}]}}
  - {id: bad, data: {type: template-transform, template: 'bad'}}
  - {id: out, data: {type: end, outputs: [{variable: good, value_selector: [good, output]}, {variable: work, value_selector: [work, stdout]}]}}
edges:
  - {source: in, target: work}
  - {source: in, target: review}
  - {source: review, sourceHandle: approve, target: good}
  - {source: review, sourceHandle: reject, target: bad}
  - {source: good, target: out}
  - {source: bad, target: out}
  - {source: work, target: out}
";

/// Asks once for every item, and once more.
const MANY: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: names, type: 'array[string]'}]}}
  - id: each
    data:
      type: iteration
      iterator_selector: [in, names]
      output_selector: [ask, age]
      is_parallel: PARALLEL
      sub_graph:
        nodes:
          - {id: begin, data: {type: iteration-start}}
          - {id: ask, data: {type: human-input, prompt: 'How old is {{#each.item#}}?', variables: [{name: age, type: number, required: true}]}}
        edges:
          - {source: begin, target: ask}
  - {id: last, data: {type: human-input, prompt: 'And you?', variables: [{name: age, type: number, required: true}]}}
  - {id: out, data: {type: end, outputs: [{variable: ages, value_selector: [each, output]}, {variable: mine, value_selector: [last, age]}]}}
edges:
  - {source: in, target: each}
  - {source: in, target: last}
  - {source: each, target: out}
  - {source: last, target: out}
";

fn id() -> RunId {
    "r".parse().unwrap()
}

/// A store, a clock, and a folder that programs run in.
struct World {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default().booted());
        Self { store: Arc::new(ObjectStore::in_memory()), clock, folder: tempfile::tempdir().unwrap() }
    }

    fn process_at(&self) -> Context {
        process_at(&self.store, &self.clock)
    }

    fn start(&self, document: &str, given: Value) -> StartFlow {
        let Value::Map(inputs) = given else { panic!("inputs are a map") };
        StartFlow {
            config: None,
            priority: 0,
            estimated_complexity: None,
            document: document.to_owned(),
            format: Format::Yaml,
            inputs,
            system: std::collections::BTreeMap::new(),
            conversation: std::collections::BTreeMap::new(),
            id: Some(id()),
            name: "flow".to_owned(),
            folder: Some(self.folder.path().to_str().unwrap().to_owned()),
            labels: Default::default(),
            options: FlowOptions::default(),
        }
    }

    fn review(&self) -> StartFlow {
        self.start(REVIEW, Value::map([("topic", "honey".into())]))
    }

    async fn resume(&self) -> RunOutcome {
        resume_durable(&self.process_at(), &id(), FlowOptions::default()).await.unwrap()
    }

    async fn answer(&self, which: Option<&str>, answer: Value) -> Result<String, AnswerError> {
        answer_question(&self.process_at(), &id(), which, &answer, "Ada").await.map(|step| step.to_string())
    }

    async fn status(&self) -> RunStatus {
        self.store.summary(&id()).await.unwrap().unwrap().status
    }

    fn ledger(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("ledger")).unwrap_or_default()
    }
}

fn steps(outcome: &RunOutcome) -> Vec<&str> {
    outcome.questions.iter().map(|question| question.step.as_str()).collect()
}

/// F7: other branches go on, the run waits in its log and no process drives it; the answer comes from another process.
#[tokio::test]
async fn a_run_with_nothing_left_to_do_waits_without_anybody_and_goes_on_with_the_answer() {
    let world = World::new();
    let outcome = run_durable(&world.process_at(), world.review()).await.unwrap();
    assert_eq!((outcome.status, steps(&outcome)), (RunStatus::Waiting, vec!["review"]));
    assert_eq!(world.status().await, RunStatus::Waiting);
    assert_eq!(world.ledger(), "work\n", "the other branch went on to its end");
    let question = &open_questions(&world.process_at(), &id()).await.unwrap()[0];
    assert_eq!(question.prompt, "Is honey good?");
    assert_eq!(question.token.len(), 32);
    let form = question.form.as_ref().unwrap();
    assert_eq!((form.title.as_str(), form.approval, form.fields.len()), ("Review", true, 3));
    assert_eq!((form.fields[1].default.clone(), form.fields[2].label.as_str()), ("green".into(), "A word or two"));

    // Resumed without an answer, it waits for the same question, with the same token.
    let again = world.resume().await;
    assert_eq!(again.status, RunStatus::Waiting);
    assert_eq!(again.questions[0].token, question.token);

    let answered = Value::map([("approved", true.into()), ("stars", "5".into())]);
    assert_eq!(world.answer(Some(&question.token), answered.clone()).await.unwrap(), "review");
    assert!(matches!(world.answer(None, answered).await, Err(AnswerError::Run(RunError::NotAsked { .. }))), "once");
    let outcome = world.resume().await;
    assert_eq!(outcome.outputs, inputs([("good", "5 green".into()), ("work", "done\n".into())]));
    assert_eq!(world.ledger(), "work\n", "nothing ran twice");
    let history = WholeHistory::of(&world.process_at(), &id()).await.unwrap();
    assert_eq!((history.answers.len(), history.answers[0].by.as_str()), (1, "Ada"));
}

/// F7: what isn't as the question wants it is refused, and the question stays open.
#[tokio::test]
async fn an_answer_that_does_not_fit_the_form_is_refused() {
    let world = World::new();
    run_durable(&world.process_at(), world.review()).await.unwrap();
    let cases = [
        (
            Value::map([("approved", "maybe".into()), ("stars", 5.into())]),
            "say whether it is approved: approved=true or approved=false",
        ),
        (
            Value::map([("approved", "".into()), ("stars", 5.into())]),
            "say whether it is approved: approved=true or approved=false",
        ),
        (Value::map([("approved", true.into())]), "\"stars\" is required"),
        (Value::map([("approved", true.into()), ("stars", "many".into())]), "\"stars\": \"many\" is not a number"),
        (
            Value::map([("approved", true.into()), ("stars", 1.into()), ("colour", "blue".into())]),
            "\"colour\": \"blue\" is not one of red, green",
        ),
        (
            Value::map([("approved", true.into()), ("stars", 1.into()), ("note", "x".into()), ("sters", 1.into())]),
            "it doesn't ask for \"sters\"; did you mean \"stars\"?",
        ),
        (Value::map([("stars", 1.into())]), "say whether it is approved: approved=true or approved=false"),
        (Value::from(7), "an answer is a map, not an integer"),
    ];
    for (answer, wanted) in cases {
        match world.answer(None, answer).await {
            Err(AnswerError::Invalid { problem, .. }) => assert_eq!(problem, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
    assert_eq!(world.status().await, RunStatus::Waiting);
}

/// F7: several questions at once, inside an iteration too, answered in any order and over several processes.
#[tokio::test]
async fn questions_of_an_iteration_are_answered_in_any_order() {
    let names = || Value::map([("names", vec!["Ann".into(), "Bob".into(), "Cy".into()].into())]);
    let world = World::new();
    let start = world.start(&MANY.replace("PARALLEL", "true"), names());
    let outcome = run_durable(&world.process_at(), start).await.unwrap();
    assert_eq!(steps(&outcome), ["each/1/ask", "each/2/ask", "each/3/ask", "last"]);
    assert!(matches!(
        world.answer(Some("ask"), Value::map([("age", 1.into())])).await,
        Err(AnswerError::Run(RunError::WhichQuestion { .. }))
    ));
    for (number, step) in ["each/3/ask", "last", "each/1/ask", "each/2/ask"].into_iter().enumerate() {
        let age = i64::try_from(number).unwrap();
        world.answer(Some(step), Value::map([("age", age.into())])).await.unwrap();
        let outcome = world.resume().await;
        assert_eq!(outcome.questions.len(), 3 - number, "after {step}");
    }
    let outcome = world.resume().await;
    let ages = vec![Value::from(2), 3.into(), 0.into()];
    assert_eq!(outcome.outputs, inputs([("ages", ages.into()), ("mine", 1.into())]));

    // One after the other, a round asks when the one before has its answer.
    let world = World::new();
    let start = world.start(&MANY.replace("PARALLEL", "false"), names());
    let mut outcome = run_durable(&world.process_at(), start).await.unwrap();
    for step in ["each/1/ask", "each/2/ask", "each/3/ask"] {
        assert_eq!(steps(&outcome), [step, "last"]);
        world.answer(Some(step), Value::map([("age", 7.into())])).await.unwrap();
        outcome = world.resume().await;
    }
    world.answer(None, Value::map([("age", 9.into())])).await.unwrap();
    assert_eq!(world.resume().await.outputs["mine"], 9.into());
}

/// F7, promise 14: the time of a question runs on while no process drives the run, by a clock that doesn't jump; then
/// what the document says happens, and an answer comes too late.
#[tokio::test]
async fn a_question_that_nobody_answered_in_time_takes_its_default() {
    let late = |action: &str| {
        REVIEW.replace("resume_mode: approval,", &format!("resume_mode: approval, timeout_secs: 60, {action},"))
    };
    for (action, expected) in [
        ("timeout_action: auto_approve, timeout_default_values: {stars: 1, colour: red}", Ok("1 red")),
        ("timeout_action: auto_reject", Ok("")),
        ("timeout_action: fail", Err("node review failed: no answer came within 60 s")),
    ] {
        let world = World::new();
        let start = world.start(&late(action), Value::map([("topic", "honey".into())]));
        let outcome = run_durable(&world.process_at(), start).await.unwrap();
        assert!(outcome.questions[0].timeout_at.is_some());
        world.clock.advance(Duration::from_secs(59));
        assert_eq!(world.resume().await.status, RunStatus::Waiting, "not yet");
        world.clock.advance(Duration::from_secs(2));
        let answered = Value::map([("approved", true.into()), ("stars", 5.into())]);
        assert!(matches!(world.answer(None, answered).await, Err(AnswerError::Run(RunError::Unanswered { .. }))));
        let outcome = world.resume().await;
        match expected {
            Ok(good) => assert_eq!(crate::support::text(&outcome.outputs["good"]), good, "{action}"),
            Err(error) => assert_eq!(outcome.error.as_deref(), Some(error)),
        }
    }
}

/// Decision 5: killed at any store call of asking, answering or going on, the run ends as if nothing had happened.
#[tokio::test]
async fn a_crash_at_any_call_neither_loses_a_question_nor_uses_an_answer_twice() {
    let answers = [("each/2/ask", 4), ("last", 9), ("each/1/ask", 3)];
    let document = MANY.replace("PARALLEL", "true");
    let given = || Value::map([("names", vec!["Ann".into(), "Bob".into()].into())]);
    let full = std::env::var("PITON_TEST").as_deref() == Ok("full");
    // A prime: over the calls of a round it strikes at every kind of them.
    let step = if full { 1 } else { 7 };
    let (mut at, mut crashed) = (1, 0);
    loop {
        let mut struck = false;
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let world = World::new();
            let crashing = Arc::new(CrashStore::new(Arc::clone(&world.store), fault));
            let store: Arc<dyn Store> = Arc::clone(&crashing) as _;
            let start = || world.start(&document, given());
            // Until the crash by the one store, from then on by the other.
            let alive = |crashing: &CrashStore| if crashing.struck() { &world.store } else { &store };
            let mut outcome = None;
            for round in 0..20 {
                let context = process_at(alive(&crashing), &world.clock);
                let driven = match round {
                    0 => run_durable(&context, start()).await,
                    _ => resume_durable(&context, &id(), FlowOptions::default()).await,
                };
                let driven = match driven {
                    // It was never created.
                    Err(_) if round == 0 || crashing.struck() => {
                        let context = process_at(&world.store, &world.clock);
                        run_durable(&context, start()).await
                    }
                    driven => driven,
                };
                let driven = driven.unwrap();
                if driven.status == RunStatus::Completed {
                    outcome = Some(driven);
                    break;
                }
                let open = steps(&driven).into_iter().map(str::to_owned).collect::<Vec<_>>();
                let (step, age) = answers.iter().find(|(step, _)| open.contains(&(*step).to_owned())).unwrap();
                let value = Value::map([("age", i64::from(*age).into())]);
                let context = process_at(alive(&crashing), &world.clock);
                // Whether it counts shows when the run goes on.
                drop(answer_question(&context, &id(), Some(step), &value, "Ada").await);
            }
            let outcome = outcome.expect("it ends");
            assert_eq!(outcome.outputs["ages"], vec![Value::from(3), 4.into()].into(), "{fault:?}");
            assert_eq!(outcome.outputs["mine"], 9.into(), "{fault:?}");
            let history = WholeHistory::of(&world.process_at(), &id()).await.unwrap();
            assert_eq!(history.answers.len(), 3, "{fault:?}: each was answered once");
            struck |= crashing.struck();
            crashed += u32::from(crashing.struck());
        }
        if !struck {
            break;
        }
        at += step;
    }
    assert!(crashed > if full { 100 } else { 20 }, "{crashed} crashes");
}
