//! Checkpoints: parts are saved, kept and loaded.

use piton_runtime::Run;
use piton_store::{Content, DraftPart};
use piton_types::{PartName, Value};

use crate::support::{history, memory, open, process};

fn part<'a>(name: &str, value: &'a Value) -> DraftPart<'a> {
    DraftPart { name: name.into(), schema: format!("test.{name}"), version: 2, content: Content::Value(value) }
}

#[tokio::test]
async fn parts_that_are_not_given_stay() {
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    let (talk, count) = (Value::from("hello ".repeat(5_000)), Value::from(1));
    let first = run.checkpoint("first", vec![part("talk", &talk), part("count", &count)]).await.unwrap();
    let second = run.save("count", &Value::from(2)).await.unwrap();
    assert_eq!((first.seq.0, second.to_string().as_str()), (2, "a-run@3"));
    drop(run);

    let run = Run::open(&process(&store), open()).await.unwrap();
    assert_eq!(run.part("talk").await.unwrap(), Some(talk));
    assert_eq!(run.part("count").await.unwrap(), Some(Value::from(2)));
    assert_eq!(run.part("other").await.unwrap(), None);
    let (seq, parts) = history(&store).await.checkpoint.unwrap();
    assert_eq!((seq, parts[&PartName::from("talk")].version), (second.seq, 2));
}

#[tokio::test]
async fn a_state_goes_on_after_a_restart() {
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    run.save("talk", &Value::map([("messages", Value::from(vec![Value::from("one")]))])).await.unwrap();
    drop(run);

    let run = Run::open(&process(&store), open()).await.unwrap();
    let mut state = run.part_state("talk").await.unwrap();
    state.push(&"/messages".parse().unwrap(), Value::from("two")).await.unwrap();
    let content = Content::State(&mut state);
    let draft = DraftPart { name: "talk".into(), schema: "piton.talk".into(), version: 1, content };
    run.checkpoint("more", vec![draft]).await.unwrap();
    let messages = Value::from(vec![Value::from("one"), Value::from("two")]);
    assert_eq!(run.part("talk").await.unwrap(), Some(Value::map([("messages", messages)])));
    assert!(run.part_state("other").await.is_none());
}
