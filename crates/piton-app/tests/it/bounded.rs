//! What the verbs take beside a long run doesn't grow with its finished steps.

use std::path::Path;

use piton_app::App;
use piton_app::files::Capture;
use piton_app::files::status::{save, status};
use piton_app::runs::answer::Asked;
use piton_app::runs::list::list;
use piton_app::runs::resume::{self, ResumeRun};
use piton_app::runs::show::show;
use piton_app::runs::start;
use piton_store::Call;
use piton_testing::level::by_level;
use piton_types::Value;

use crate::{NoPerson, all, asking, drive, json, open};

/// How many calls more the longer run may take, and how many bytes more are read: another level of the index for a few
/// steps, and segments that are cut elsewhere.
const MORE: (u64, u64) = (48, 1 << 20);

/// A loop of so many rounds of four steps before the one that asks.
fn document(rounds: usize) -> String {
    format!(
        "
nodes:
  - {{id: in, data: {{type: start}}}}
  - id: work
    data:
      type: loop
      loop_count: {}
      loop_variables: [{{label: n, var_type: number, value_type: constant, value: '0'}}]
      sub_graph:
        nodes:
          - {{id: s, data: {{type: start}}}}
          - {{id: gate, data: {{type: if-else, cases: [{{case_id: ask, logical_operator: or, conditions: [{{variable_selector: [work, index], comparison_operator: '=', value: {rounds}}}]}}]}}}}
          - {{id: ask, data: {{type: human-input, checkpoint: false, prompt: 'Go on?', variables: [{{name: word, type: string, required: true}}]}}}}
          - {{id: deed, data: {{type: assigner, version: '2', items: [{{variable_selector: [work, n], input_type: constant, operation: '+=', value: 1}}]}}}}
          - {{id: e, data: {{type: end, outputs: []}}}}
        edges:
          - {{source: s, target: gate}}
          - {{source: gate, sourceHandle: ask, target: ask}}
          - {{source: gate, sourceHandle: 'false', target: deed}}
          - {{source: ask, target: deed}}
          - {{source: deed, target: e}}
  - {{id: out, data: {{type: end, outputs: [{{variable: n, value_selector: [work, n]}}]}}}}
edges:
  - {{source: in, target: work}}
  - {{source: work, target: out}}
",
        rounds + 5
    )
}

/// What a verb takes of the store: calls, and bytes that are read.
async fn cost(root: &Path, verb: impl AsyncFnOnce(&App)) -> (u64, u64) {
    let app = open(root);
    verb(&app).await;
    let (mut calls, mut bytes) = (0, 0);
    for metrics in app.metrics() {
        calls += metrics.all().iter().map(|measured| measured.count).sum::<u64>();
        bytes += [Call::Read, Call::Section, Call::Pack].map(|call| metrics.of(call).bytes).iter().sum::<u64>();
    }
    assert!(calls > 0);
    (calls, bytes)
}

/// What the verbs take beside a run of so many rounds.
async fn costs(root: &Path, rounds: usize) -> Vec<(&'static str, (u64, u64))> {
    let app = open(root);
    std::fs::write(app.folder().join("notes.txt"), "one\n").unwrap();
    save(&app, "first".to_owned(), Capture::default()).await.unwrap();
    let start = asking(&app, "many");
    std::fs::write(&start.document, document(rounds)).unwrap();
    let outcome = drive(&app, start::prepare(&app, start).await.unwrap()).await.unwrap();
    assert_eq!(json(&outcome)["status"], "waiting");
    let asked = Asked::find(&app, &"many".parse().unwrap(), None).await.unwrap();
    asked.answer(&Value::map([("word", "yes".into())]), "Ada").await.unwrap();
    let many = || "many".parse().unwrap();
    vec![
        (
            "status",
            cost(root, async |app| {
                let view = status(app, Capture::default(), false, false).await.unwrap();
                assert_eq!(view.label, "first");
            })
            .await,
        ),
        ("ls", cost(root, async |app| assert_eq!(list(app, all()).await.unwrap().len(), 2)).await),
        (
            "show",
            cost(root, async |app| {
                let shown = json(&show(app, &many(), false).await.unwrap());
                assert!(shown["finished_steps"].as_u64().unwrap() >= 4 * rounds as u64, "{shown}");
            })
            .await,
        ),
        (
            "show of a step",
            cost(root, async |app| {
                let step = json(&show(app, &"many/work/7/gate".parse().unwrap(), false).await.unwrap());
                assert_eq!(step["step"], "work/7/gate", "{step}");
            })
            .await,
        ),
        (
            "resume",
            cost(root, async |app| {
                let ready = resume::prepare(app, &ResumeRun::of("many".parse().unwrap()), &NoPerson).await.unwrap();
                assert_eq!(json(&drive(app, ready).await.unwrap())["outputs"]["n"], rounds + 5);
            })
            .await,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_verbs_take_beside_a_long_run_is_bounded() {
    let root = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for rounds in [250, by_level(1_250, 2_500, 25_000)] {
        let root = root.path().join(rounds.to_string());
        std::fs::create_dir(&root).unwrap();
        seen.push(costs(&root, rounds).await);
    }
    for ((verb, few), (_, many)) in seen[0].iter().zip(&seen[1]) {
        assert!(many.0 <= few.0 + MORE.0 && many.1 <= few.1 + MORE.1, "{verb}: {few:?} and {many:?}");
    }
}

/// What shows every step grows with them, and the comparison sees it.
#[tokio::test(flavor = "multi_thread")]
async fn what_shows_every_step_grows() {
    let root = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for rounds in [100, 2_000] {
        let root = root.path().join(rounds.to_string());
        std::fs::create_dir(&root).unwrap();
        costs(&root, rounds).await;
        seen.push(cost(&root, async |app| drop(show(app, &"many".parse().unwrap(), true).await.unwrap())).await);
    }
    let (few, many) = (seen[0], seen[1]);
    assert!(many.0 > few.0 + MORE.0 || many.1 > few.1 + MORE.1 / 4, "{few:?} and {many:?}");
}
