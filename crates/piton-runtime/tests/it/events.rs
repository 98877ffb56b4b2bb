//! What a listener is told, and that the log has it by then.

use std::sync::{Arc, Mutex};

use piton_runtime::{Failure, Listener, OpenRun, Run};
use piton_types::Event;

use crate::support::{memory, open, process};

#[tokio::test]
async fn events_come_in_order_and_after_the_log() {
    let store = memory();
    let told = Arc::new(Mutex::new(Vec::new()));
    for last in [false, true] {
        let sink = Arc::clone(&told);
        let events = Listener::new(move |event: &Event| {
            let text = match event {
                Event::RunStarted { resumed, .. } => format!("started {resumed}"),
                Event::StepStarted { step, .. } => format!("begun {step}"),
                Event::StepSkipped { step, .. } => format!("skipped {step}"),
                Event::StepFinished { step, .. } => format!("finished {step}"),
                Event::StepFailed { step, error, .. } => format!("failed {step}: {error}"),
                Event::CheckpointSaved { checkpoint, .. } => format!("saved {checkpoint}"),
                Event::CheckpointResumed { checkpoint, .. } => format!("from {checkpoint}"),
                Event::RunSucceeded { .. } => "succeeded".to_owned(),
                Event::RunFailed { error, .. } => format!("run failed: {error}"),
                other => format!("{other:?}"),
            };
            sink.lock().unwrap().push(text);
        });
        let mut run = Run::open(&process(&store), OpenRun { events, ..open() }).await.unwrap();
        run.step("a", (), async |()| Ok::<_, String>(())).await.unwrap();
        let tried = run.step("b", (), async |()| if last { Ok(()) } else { Err("oh") }).await;
        if last {
            run.save("app", &1.into()).await.unwrap();
            run.complete(()).await.unwrap();
        } else {
            run.fail(Failure::from(&tried.unwrap_err())).await.unwrap();
        }
    }
    let first = ["started false", "begun a", "finished a", "begun b", "failed b: oh", "run failed: step b failed: oh"];
    let second = ["started true", "skipped a", "begun b", "finished b", "saved a-run@8", "succeeded"];
    assert_eq!(*told.lock().unwrap(), [first, second].concat());
}
