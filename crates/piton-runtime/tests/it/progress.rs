//! What a run says of its work: progress, checks, changed files (R2, R4).

use piton_runtime::{Context, History, OpenRun, Run, StartAt};
use piton_types::{Progress, ProgressReport, RunState, Verification, from_value};

use crate::support::{memory, open, process, run_id};

fn check(name: &str, passed: bool) -> Verification {
    Verification { name: name.to_owned(), passed, detail: String::new() }
}

/// What was said is in the log: another process has it, through indexes too, going back undoes it, and the run has it
/// all when it completes.
#[tokio::test]
async fn what_a_run_says_of_its_work_outlives_its_process_and_is_undone() {
    let store = memory();
    let open = || OpenRun { priority: 3, estimated_complexity: Some(1.5), index_every: Some(2), ..open() };
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    run.report(ProgressReport { progress: Some(Progress::percent(10)), ..ProgressReport::of("began") }).await.unwrap();
    run.verified(check("tests", false)).await.unwrap();
    run.changed_files(vec!["b".to_owned(), "a".to_owned()]).await.unwrap();
    run.step("one", (), async |()| Ok::<_, String>(1)).await.unwrap();
    let back_to = History::of(&Context::system(store.clone()), run.id()).await.unwrap().head;
    run.report(ProgressReport { iteration: Some(4), ..ProgressReport::of("went on") }).await.unwrap();
    run.verified(check("lints", true)).await.unwrap();
    run.changed_files(vec!["c".to_owned()]).await.unwrap();
    drop(run);
    let context = process(&store);
    let history = History::of(&context, &run_id()).await.unwrap();
    let at_work = history.at_work();
    assert_eq!((at_work.iteration, at_work.progress), (4, Some(Progress::percent(10))), "what isn't said stays");
    assert_eq!((at_work.last_progress.as_deref(), at_work.current.as_deref()), (Some("went on"), Some("one")));
    assert_eq!((history.priority, history.estimated_complexity), (3, Some(1.5)));
    assert_eq!(history.verifications(), [check("tests", false), check("lints", true)]);
    let run = Run::open(&context, OpenRun { at: StartAt::Entry(back_to), ..open() }).await.unwrap();
    run.verified(check("tests", true)).await.unwrap();
    run.complete(()).await.unwrap();
    let RunState::Completed(completed) = History::of(&context, &run_id()).await.unwrap().state else { panic!() };
    assert_eq!(completed.files_modified, ["a", "b"], "what was undone counts no more");
    let checks: Vec<Verification> = from_value(completed.verification).unwrap();
    assert_eq!(checks, [check("tests", true)], "the newest check of a name counts");
}

/// A paused run says how it goes on, in words of its own or of its program.
#[tokio::test]
async fn a_paused_run_says_how_it_goes_on() {
    let store = memory();
    for (said, expected) in [(None, "behind one"), (Some("buy milk first".to_owned()), "buy milk first")] {
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        run.step("one", (), async |()| Ok::<_, String>(1)).await.unwrap();
        run.pause_with("enough", said).await.unwrap();
        let RunState::Paused(paused) = History::of(&process(&store), &run_id()).await.unwrap().state else { panic!() };
        assert!(paused.resume_instructions.unwrap().contains(expected));
    }
}
