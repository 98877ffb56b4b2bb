//! The way back: what is taken back, what stays, what is shown. Decision 9, promises 16 to 18.

use std::sync::Arc;

use piton_runtime::{OpenRun, Run};
use piton_testing::SeededRandom;
use piton_types::{CheckpointRef, RunId, Timestamp, Value};
use piton_workspace::{
    ChangeKind, ConflictResolution, ContestedText, Goal, RelPath, Resolver, RestoreKind, RestoreOptions, RestorePlan,
    Selection, Session, Side, ToolCall, ToolFailure, WorkspaceError,
};

use crate::world::{World, context, look};

pub(crate) fn run_id(n: u64) -> RunId {
    RunId::generate(Timestamp::from_millis(1_700_000_000_000), &SeededRandom::new(n))
}

pub(crate) async fn begin(world: &World, n: u64) -> Session {
    Session::begin_as(&world.workspace(), run_id(n), "agent", Value::Null, &Arc::default()).await.unwrap()
}

fn resolving(resolution: ConflictResolution) -> RestoreOptions {
    RestoreOptions { resolution, ..RestoreOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_agent_a_restore_is_exact_and_can_be_undone() {
    let world = World::new();
    world.write("kept", "1");
    world.write("changed", "1");
    world.write("folder/gone", "1");
    world.link("link", "kept");
    world.mode("kept", 0o640);
    let first = world.save("").await;
    let then = look(&world.root());
    let untouched = world.inode("kept");
    world.write("changed", "2");
    std::fs::remove_dir_all(world.path("folder")).unwrap();
    world.write("folder", "a file now");
    world.remove("link");
    world.write("new/file", "2");
    let now = look(&world.root());

    let result = world.restore(&first.checkpoint).await.unwrap();
    assert_eq!(look(&world.root()), then);
    assert_eq!(world.inode("kept"), untouched, "what is the same isn't written");
    assert_eq!(result.files_restored, result.plan.changes.len());
    world.undo().await.unwrap();
    assert_eq!(look(&world.root()), now);
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!(look(&world.root()), then);
    world.undo().await.unwrap();
    assert_eq!(look(&world.root()), now, "undo, redo, undo");
    let again = world.restore(&first.checkpoint).await.unwrap();
    assert!(again.checkpoint.is_some());
    assert!(world.restore(&first.checkpoint).await.unwrap().checkpoint.is_none(), "there is nothing left to do");
}

/// Promise 18: what the user did stays when the agent's work is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn edits_between_and_after_the_agents_steps_survive() {
    let world = World::new();
    world.write("agent", "0\n");
    world.write("both", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    world.write("mine", "0\n");
    let start = world.save("").await;

    let session = begin(&world, 1).await;
    world.write("agent", "1\n");
    world.write("both", "1\n2\n3\n4\n5\n6\n7\n8\nagent\n");
    world.write("made", "by the agent\n");
    session.end(Ok(Value::Null)).await.unwrap();

    world.write("mine", "1\n");
    world.write("both", "me\n2\n3\n4\n5\n6\n7\n8\nagent\n");
    world.write("new", "mine\n");

    let session = begin(&world, 2).await;
    world.write("agent", "2\n");
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("later", "mine\n");

    world.restore(&start.checkpoint).await.unwrap();
    assert_eq!(world.read("agent"), "0\n");
    assert_eq!(world.read("mine"), "1\n");
    assert_eq!(world.read("both"), "me\n2\n3\n4\n5\n6\n7\n8\n9\n", "merged");
    assert_eq!((world.read("new"), world.read("later")), ("mine\n".to_owned(), "mine\n".to_owned()));
    assert!(!world.has("made"), "what the agent made goes");
}

/// An agent whose second turn brought a file back to what it was before the first: once the second is undone, the
/// first can be undone too.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_undone_does_not_stand_in_the_way_of_what_came_before() {
    let world = World::new();
    world.write("a", "hello\n");
    world.write("mine", "0\n");
    world.save("").await;
    for (n, text) in [(1, "goodbye\n"), (2, "hello\n")] {
        let session = begin(&world, n).await;
        world.write("a", text);
        session.end(Ok(Value::Null)).await.unwrap();
        world.write("mine", format!("{n}\n"));
    }
    world.undo().await.unwrap();
    assert_eq!(world.read("a"), "goodbye\n");
    world.undo().await.unwrap();
    assert_eq!((world.read("a"), world.read("mine")), ("hello\n".to_owned(), "2\n".to_owned()));
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!(world.read("a"), "goodbye\n");
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!(world.read("a"), "hello\n");
    world.undo().await.unwrap();
    world.undo().await.unwrap();
    assert_eq!(world.read("a"), "hello\n");
    world.write("a", "changed since\n");
    world.undo().await.unwrap_err();
    assert_eq!(world.read("a"), "changed since\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_both_changed_in_one_place_is_shown_and_nothing_is_written() {
    let world = World::new();
    world.write("a", "0\n");
    world.write("b", "0\n");
    let start = world.save("").await;
    let session = begin(&world, 1).await;
    world.write("a", "agent\n");
    world.write("b", "agent\n");
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("a", "me\n");
    let before = look(&world.root());

    let goal = Goal::Checkpoint(start.checkpoint.clone());
    for resolution in [ConflictResolution::Merge, ConflictResolution::Refuse, ConflictResolution::Ask] {
        let Err(WorkspaceError::Conflicts { conflicts }) = world.reach(goal.clone(), resolving(resolution)).await
        else {
            panic!("{resolution:?} decided by itself")
        };
        assert_eq!(conflicts.iter().map(|conflict| conflict.path.to_string()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(look(&world.root()), before);
    }
    world.reach(goal.clone(), resolving(ConflictResolution::Beside)).await.unwrap();
    assert_eq!(world.read("a") + &world.read("a.checkpoint") + &world.read("b"), "me\n0\n0\n");
    world.undo().await.unwrap();
    assert_eq!(look(&world.root()), before);
    world.reach(goal.clone(), resolving(ConflictResolution::PreferCurrent)).await.unwrap();
    assert_eq!(world.read("a") + &world.read("b"), "me\n0\n");
    world.undo().await.unwrap();
    world.reach(goal, resolving(ConflictResolution::PreferCheckpoint)).await.unwrap();
    assert_eq!(world.read("a") + &world.read("b"), "0\n0\n");
    world.undo().await.unwrap();
    assert_eq!(look(&world.root()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_takes_back_one_session_and_keeps_what_came_later() {
    let world = World::new();
    world.write("a", "0\n");
    world.save("").await;
    let first = begin(&world, 1).await;
    world.write("a", "1\n");
    world.write("one", "1\n");
    let first = first.end(Ok(Value::Null)).await.unwrap();
    let second = begin(&world, 2).await;
    world.write("two", "2\n");
    second.end(Ok(Value::Null)).await.unwrap();

    world.reach(Goal::Undo(Some(first.closed)), RestoreOptions::default()).await.unwrap();
    assert_eq!((world.read("a"), world.read("two")), ("0\n".to_owned(), "2\n".to_owned()));
    assert!(!world.has("one"));
    world.undo().await.unwrap();
    assert!(!world.has("two"), "the second session is the next to go");
    let nothing = world.undo().await.map(|_| ());
    assert!(matches!(nothing, Err(WorkspaceError::Nothing { what: "undo" })), "{nothing:?}");
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!((world.read("a"), world.read("one"), world.read("two")), ("1\n".into(), "1\n".into(), "2\n".into()));
    let nothing = world.reach(Goal::Redo, RestoreOptions::default()).await.map(|_| ());
    assert!(matches!(nothing, Err(WorkspaceError::Nothing { what: "redo" })), "{nothing:?}");
}

/// Two agents in one folder: undoing one never touches the other's files, and what may be either's is named.
#[tokio::test(flavor = "multi_thread")]
async fn two_agents_at_once() {
    let world = World::new();
    world.write("base", "0\n");
    world.save("").await;
    let a = begin(&world, 1).await;
    world.write("a-alone", "a\n");
    let b = begin(&world, 2).await;
    world.write("either", "?\n");
    let b_end = b.end(Ok(Value::Null)).await.unwrap();
    world.write("a-again", "a\n");
    let a_end = a.end(Ok(Value::Null)).await.unwrap();

    let result = world.reach(Goal::Undo(Some(a_end.closed)), RestoreOptions::default()).await.unwrap();
    assert!(!world.has("a-alone") && !world.has("a-again") && world.has("either"));
    let left: Vec<_> = result.plan.left.iter().map(|(path, why)| format!("{path}: {why}")).collect();
    assert_eq!(left, [format!("either: it changed while {} was at work too", run_id(2))]);
    let result = world.reach(Goal::Undo(Some(b_end.closed)), RestoreOptions::default()).await.unwrap();
    assert!(world.has("either") && result.checkpoint.is_none());
}

/// A session that was killed ended with its last checkpoint: what came later is the user's.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_died_does_not_claim_what_came_later() {
    let world = World::new();
    world.write("a", "0\n");
    let start = world.save("").await;
    let mut session = begin(&world, 1).await;
    world.write("a", "agent\n");
    session.checkpoint("").await.unwrap().unwrap();
    drop(session);
    world.write("mine", "1\n");
    world.restore(&start.checkpoint).await.unwrap();
    assert_eq!((world.read("a"), world.read("mine")), ("0\n".to_owned(), "1\n".to_owned()));
}

/// A session that was killed is taken back before an older one is: as far as its checkpoints tell what it did.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_died_is_undone_up_to_its_last_checkpoint() {
    let world = World::new();
    world.write("both", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    world.save("").await;
    let first = begin(&world, 1).await;
    world.write("one", "agent\n");
    first.end(Ok(Value::Null)).await.unwrap();
    let mut second = begin(&world, 2).await;
    world.write("two", "agent\n");
    second.checkpoint("").await.unwrap().unwrap();
    world.write("both", "1\n2\n3\n4\n5\n6\n7\n8\nagent\n");
    second.checkpoint("").await.unwrap().unwrap();
    world.write("anybody's", "?\n");
    let opened = second.opened().checkpoint.clone();
    drop(second);
    world.write("both", "me\n2\n3\n4\n5\n6\n7\n8\nagent\n");
    let before = look(&world.root());

    let RestorePlan { kind, plan, .. } = world.plan(Goal::Undo(None), RestoreOptions::default()).await.unwrap();
    assert_eq!(
        kind,
        RestoreKind::Undo { operation: opened.clone(), unattributed: false, whole_run: false, shared: false }
    );
    assert_eq!(plan.changes.iter().map(|change| change.path.to_string()).collect::<Vec<_>>(), ["both", "two"]);
    world.undo().await.unwrap();
    assert_eq!(world.read("both"), "me\n2\n3\n4\n5\n6\n7\n8\n9\n", "merged");
    assert!(!world.has("two") && world.has("one") && world.has("anybody's"));
    let after = look(&world.root());
    world.undo().await.unwrap();
    assert!(!world.has("one") && world.has("anybody's"), "the older session is the next to go");
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!(look(&world.root()), after);
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!(look(&world.root()), before);
    world.reach(Goal::Undo(Some(opened)), RestoreOptions::default()).await.unwrap();
    assert_eq!(look(&world.root()), after, "by its name");
}

/// What was changed in the same place since a killed session's last checkpoint is shown, and nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn the_undo_of_a_session_that_died_does_not_overwrite_later_edits() {
    let world = World::new();
    world.write("a", "0\n");
    let mut session = begin(&world, 1).await;
    world.write("a", "agent\n");
    session.checkpoint("").await.unwrap().unwrap();
    drop(session);
    world.write("a", "me\n");
    let refused = world.undo().await.map(|_| ());
    assert!(matches!(refused, Err(WorkspaceError::Conflicts { .. })), "{refused:?}");
    assert_eq!(world.read("a"), "me\n");
}

/// Only what is over can be undone without being named: a session that is at work isn't, and one whose run has begun
/// another since is.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_goes_on_is_not_taken_for_dead() {
    let world = World::new();
    world.write("a", "0\n");
    let mut first = begin(&world, 1).await;
    world.write("one", "1\n");
    first.checkpoint("").await.unwrap().unwrap();
    let nothing = world.undo().await.map(|_| ());
    assert!(matches!(nothing, Err(WorkspaceError::Nothing { what: "undo" })), "{nothing:?}");
    drop(first);
    let open = OpenRun { id: Some(run_id(1)), existing: true, ..OpenRun::default() };
    let _driver = Run::open(&context(&world.store), open).await.unwrap();
    let mut again = Session::join(&world.workspace(), run_id(1), &Arc::default()).await.unwrap();
    world.write("two", "2\n");
    again.checkpoint("").await.unwrap().unwrap();
    world.undo().await.unwrap();
    assert!(!world.has("one") && world.has("two"), "the one that died goes, the one at work stays");
    again.end(Ok(Value::Null)).await.unwrap();
    world.undo().await.unwrap();
    assert!(!world.has("one") && !world.has("two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_paths_that_were_asked_for() {
    let world = World::new();
    for name in ["src/a", "src/b", "doc/a"] {
        world.write(name, "0");
    }
    let start = world.save("").await;
    for name in ["src/a", "src/b", "doc/a", "src/new"] {
        world.write(name, "1");
    }
    let path = |text: &str| RelPath::new(text.as_bytes()).unwrap();
    let selection = Selection { only: vec![path("src")], not: vec![path("src/b")] };
    let goal = Goal::Checkpoint(start.checkpoint);
    let options = RestoreOptions { selection, ..RestoreOptions::default() };
    let plan = world.plan(goal.clone(), options.clone()).await.unwrap().plan;
    assert_eq!(plan.changes.iter().map(|change| change.path.to_string()).collect::<Vec<_>>(), ["src/a", "src/new"]);
    assert_eq!(world.read("src/a"), "1", "a preview changes nothing");
    world.reach(goal, options).await.unwrap();
    let all: Vec<_> = ["src/a", "src/b", "doc/a"].iter().map(|name| world.read(name)).collect();
    assert_eq!((all.join(""), world.has("src/new")), ("011".to_owned(), false));
}

/// An older `.gitignore` that comes back, and files that were captured and are hidden now: every byte that is
/// overwritten is kept first.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_files_are_kept_before_they_are_overwritten() {
    let world = World::new();
    world.write("build/out", "0");
    world.write("large", "0");
    let start = world.save("").await;
    world.write(".gitignore", "build/\nlarge\n");
    world.write("build/out", "1");
    world.write("build/other", "1");
    world.write("large", vec![b'1'; 2_000_000]);
    world.save("").await;
    let before = look(&world.root());
    world.restore(&start.checkpoint).await.unwrap();
    assert_eq!((world.read("build/out"), world.read("large")), ("0".to_owned(), "0".to_owned()));
    assert!(!world.has(".gitignore"));
    assert!(world.has("build/other"), "what no snapshot has is never deleted");
    world.undo().await.unwrap();
    assert_eq!(look(&world.root()), before);
}

/// An older `.gitignore` that comes back hides what was captured since: what lies in a folder that the checkpoint saw and
/// didn't capture stays as it is, even if the user asks for the rest to be exact.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_gitignore_that_comes_back_takes_nothing_with_it() {
    let world = World::new();
    world.write(".gitignore", "data/\n*.log\n");
    world.write("data/kept", "mine");
    let start = world.save("").await;
    world.write(".gitignore", "");
    world.write("data/new", "mine too");
    world.save("").await;
    let session = begin(&world, 1).await;
    world.write("data/agents", "agent");
    world.write("build.log", vec![b'x'; 2_000_000]);
    session.end(Ok(Value::Null)).await.unwrap();
    let before = look(&world.root());
    world
        .reach(Goal::Checkpoint(start.checkpoint.clone()), RestoreOptions { exact: true, ..RestoreOptions::default() })
        .await
        .unwrap();
    assert_eq!(world.read(".gitignore"), "data/\n*.log\n");
    assert_eq!((world.read("data/kept"), world.read("data/new")), ("mine".to_owned(), "mine too".to_owned()));
    // The next look goes by the rules that are back.
    let saved = world.save("").await;
    let hidden = world.workspace().excluded(saved.snapshot).await.unwrap();
    assert!(hidden.iter().any(|(path, _)| path.to_string() == "data"), "{hidden:?}");
    let undo = world.workspace().timeline().await.unwrap();
    let restored = undo.moments.iter().rfind(|moment| moment.is_operation()).unwrap().checkpoint.clone();
    world.reach(Goal::Undo(Some(restored)), RestoreOptions::default()).await.unwrap();
    assert_eq!(look(&world.root()), before);
}

/// Promise 16: a parent that is a link now, or a name that leads out, changes nothing outside.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outside_is_touched() {
    let world = World::new();
    let outside = world.scratch.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "canary").unwrap();
    world.write("folder/file", "0");
    world.write("folder/sub/file", "0");
    let start = world.save("").await;
    std::fs::remove_dir_all(world.path("folder")).unwrap();
    world.link("folder", "../outside");
    world.restore(&start.checkpoint).await.unwrap();
    assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "canary");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(world.read("folder/file"), "0");
    assert!(!world.path("folder").is_symlink());
}

#[tokio::test(flavor = "multi_thread")]
async fn renames_modes_and_kinds_are_told_apart() {
    let world = World::new();
    world.write("old-name", "some content\n");
    world.write("script", "x\n");
    world.write("gone", "y\n");
    world.write("kind", "z\n");
    let start = world.save("").await;
    std::fs::rename(world.path("old-name"), world.path("new-name")).unwrap();
    world.mode("script", 0o755);
    world.remove("gone");
    world.remove("kind");
    world.link("kind", "script");
    world.write("made", "m\n");
    let found = world.workspace().detect_changes(start.snapshot, Side::Now, &Arc::default()).await.unwrap();
    let kinds: Vec<_> = found.changes.iter().map(|change| (change.path.to_string(), change.kind)).collect();
    let expected = [
        ("gone", ChangeKind::Deleted),
        ("kind", ChangeKind::Modified),
        ("made", ChangeKind::Created),
        ("new-name", ChangeKind::Renamed),
        ("script", ChangeKind::ModeChanged),
    ];
    assert_eq!(kinds, expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert_eq!(found.changes[3].from.as_ref().unwrap().to_string(), "old-name");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_come_back_if_asked_for() {
    let world = World::new();
    world.write("deep/er/a", "0");
    let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_600_000_000, 123_456_789);
    let file = std::fs::File::options().write(true).open(world.path("deep/er/a")).unwrap();
    file.set_times(std::fs::FileTimes::new().set_modified(at)).unwrap();
    let start = world.save("").await;
    world.write("deep/er/a", "1");
    let goal = Goal::Checkpoint(start.checkpoint);
    world.reach(goal, RestoreOptions { times: true, ..RestoreOptions::default() }).await.unwrap();
    assert_eq!(world.path("deep/er/a").metadata().unwrap().modified().unwrap(), at);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_without_files_is_refused() {
    let world = World::new();
    world.save("").await;
    let nowhere = CheckpointRef { run: world.workspace().run(), seq: piton_types::Seq(0) };
    assert!(matches!(world.restore(&nowhere).await, Err(WorkspaceError::NoFiles { .. })));
}

/// W11: a file that the user renamed, or the agent, is followed: the name and the edits both are carried over.
#[tokio::test(flavor = "multi_thread")]
async fn renamed_files_are_followed() {
    let text = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n{last}\n");
    // The agent changes it, the user renames it.
    let world = World::new();
    world.write("a", text("1", "9"));
    let start = world.save("").await;
    let session = begin(&world, 1).await;
    world.write("a", text("1", "agent"));
    session.end(Ok(Value::Null)).await.unwrap();
    world.remove("a");
    world.write("sub/b", text("mine", "agent"));
    world.restore(&start.checkpoint).await.unwrap();
    assert!(!world.has("a"), "the user's name stays");
    assert_eq!(world.read("sub/b"), text("mine", "9"), "the agent's change is taken back in it");
    world.undo().await.unwrap();
    assert_eq!(world.read("sub/b"), text("mine", "agent"));

    // The agent renames it, the user changes it.
    let world = World::new();
    world.write("a", text("1", "9"));
    let start = world.save("").await;
    let session = begin(&world, 1).await;
    std::fs::rename(world.path("a"), world.path("b")).unwrap();
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("b", text("mine", "9"));
    world.restore(&start.checkpoint).await.unwrap();
    assert!(!world.has("b"));
    assert_eq!(world.read("a"), text("mine", "9"), "the user's change is carried over to the old name");

    // Both rename it: the agent's name goes with what it did, the user's stays, or it is said.
    let world = World::new();
    world.write("a", text("1", "9"));
    let start = world.save("").await;
    let session = begin(&world, 1).await;
    std::fs::rename(world.path("a"), world.path("agents")).unwrap();
    session.end(Ok(Value::Null)).await.unwrap();
    std::fs::rename(world.path("agents"), world.path("users")).unwrap();
    let before = look(&world.root());
    match world.restore(&start.checkpoint).await {
        Ok(_) => assert!(world.has("users") || world.read("a") == text("1", "9")),
        Err(WorkspaceError::Conflicts { .. }) => assert_eq!(look(&world.root()), before),
        Err(error) => panic!("{error}"),
    }
    // A file here, a folder there.
    let world = World::new();
    world.write("x", "file\n");
    let start = world.save("").await;
    let session = begin(&world, 1).await;
    world.remove("x");
    world.write("x/inner", "agent\n");
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("x/mine", "mine\n");
    let before = look(&world.root());
    let outcome = world.restore(&start.checkpoint).await;
    assert!(matches!(outcome, Err(WorkspaceError::Conflicts { .. })), "{outcome:?}");
    assert_eq!(look(&world.root()), before);
}

/// W11: a file that was renamed by one after the other is followed through all of its names.
#[tokio::test(flavor = "multi_thread")]
async fn renames_of_renamed_files_are_followed() {
    let text = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n{last}\n");
    // The agent renames it and changes it; the user gives it another name and changes it, too.
    let world = World::new();
    world.write("a", text("1", "9"));
    let start = world.save("").await;
    let session = begin(&world, 1).await;
    world.remove("a");
    world.write("agents", text("1", "agent"));
    session.end(Ok(Value::Null)).await.unwrap();
    world.remove("agents");
    world.write("users", text("mine", "agent"));
    let before = look(&world.root());
    world.restore(&start.checkpoint).await.unwrap();
    assert!(!world.has("a") && !world.has("agents"));
    assert_eq!(world.read("users"), text("mine", "9"), "the user's name and edit stay, the agent's edit doesn't");
    world.undo().await.unwrap();
    assert_eq!(look(&world.root()), before);

    // The user renames it between two sessions, the second of which renames it again.
    let world = World::new();
    world.write("a", text("1", "9"));
    let start = world.save("").await;
    let session = begin(&world, 1).await;
    world.write("a", text("1", "agent"));
    session.end(Ok(Value::Null)).await.unwrap();
    std::fs::rename(world.path("a"), world.path("users")).unwrap();
    let session = begin(&world, 2).await;
    std::fs::rename(world.path("users"), world.path("agents")).unwrap();
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("agents", text("mine", "agent"));
    world.restore(&start.checkpoint).await.unwrap();
    assert!(!world.has("a") && !world.has("agents"));
    assert_eq!(world.read("users"), text("mine", "9"));
}

type Answer = fn(&ContestedText) -> Result<Vec<u8>, String>;

struct Scripted(Answer);

impl Resolver for Scripted {
    fn resolve(&self, contested: &ContestedText) -> Result<Vec<u8>, String> {
        (self.0)(contested)
    }
}

/// W6, W11: markers, a resolver, and a resolver that lies.
#[tokio::test(flavor = "multi_thread")]
async fn texts_that_cannot_be_merged_are_marked_or_resolved() {
    let world = World::new();
    world.write("a", "0\n");
    let start = world.save("").await;
    let session = begin(&world, 1).await;
    world.write("a", "agent\n");
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("a", "me\n");
    let goal = Goal::Checkpoint(start.checkpoint);
    world.reach(goal.clone(), resolving(ConflictResolution::Markers)).await.unwrap();
    assert_eq!(world.read("a"), "<<<<<<< current\nme\n=======\n0\n>>>>>>> checkpoint\n");
    world.undo().await.unwrap();
    let with = |answer: Answer| RestoreOptions {
        resolver: Some(Arc::new(Scripted(answer))),
        ..resolving(ConflictResolution::Resolve)
    };
    let result = world.reach(goal.clone(), with(|_| Ok(b"me and 0\nme\n".to_vec()))).await.unwrap();
    assert_eq!(world.read("a"), "me and 0\nme\n");
    assert!(result.plan.changes[0].resolved, "so that a person looks at it");
    world.undo().await.unwrap();
    let lies: [(Answer, &str); 4] = [
        (|contested| Ok(contested.marked().unwrap()), "markers"),
        (|_| Ok(b"something else\n".to_vec()), "nothing of either"),
        (|_| Ok(b"me\n".repeat(1000)), "larger"),
        (|_| Err("it took too long".to_owned()), "took too long"),
    ];
    for (lie, why) in lies {
        let before = look(&world.root());
        let outcome = world.reach(goal.clone(), with(lie)).await;
        let Err(WorkspaceError::Conflicts { conflicts }) = outcome else { panic!("{why}: {outcome:?}") };
        assert!(conflicts[0].reason.contains(why), "{}", conflicts[0].reason);
        assert_eq!(look(&world.root()), before);
    }
}

/// W11: the resolver is told what the agent was asked and did, and what is known of others who worked there.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_knows_what_both_sides_were_after() {
    struct Told(std::sync::Mutex<Vec<ContestedText>>);
    impl Resolver for Told {
        fn resolve(&self, contested: &ContestedText) -> Result<Vec<u8>, String> {
            self.0.lock().unwrap().push(contested.clone());
            Ok(b"me and 0\nme\n".to_vec())
        }
    }
    let world = World::new();
    world.write("a", "0\n");
    let mut session = begin(&world, 1).await;
    let call = ToolCall {
        step: "edit/1".parse().unwrap(),
        tool: "Edit".to_owned(),
        input: Value::map([("path", "a".into()), ("why", "the greeting was cold".into())]),
    };
    let tool = async {
        world.write("a", "agent\n");
        Ok::<_, ToolFailure>(((), Value::Null))
    };
    session.execute_with_checkpoint(call, tool).await.unwrap();
    let first = session.end(Ok(Value::Null)).await.unwrap();
    let other = begin(&world, 2).await;
    let other_run = other.run().clone();
    world.write("a", "me\n");
    other.end(Ok(Value::Null)).await.unwrap();
    let told = Arc::new(Told(std::sync::Mutex::default()));
    let resolver = Some(Arc::clone(&told) as Arc<dyn Resolver>);
    let options = RestoreOptions { resolver, ..resolving(ConflictResolution::Resolve) };
    world.reach(Goal::Undo(Some(first.closed)), options).await.unwrap();
    assert_eq!(world.read("a"), "me and 0\nme\n");
    let asked = told.0.lock().unwrap();
    let [contested] = &asked[..] else { panic!("it is asked once: {asked:?}") };
    assert!(contested.checkpoint_intent.contains("tool Edit: "), "{contested:?}");
    assert!(contested.checkpoint_intent.contains("the greeting was cold"), "{contested:?}");
    assert!(contested.current_intent.contains("session "), "{contested:?} of {other_run}");
    assert!(!contested.current_intent.contains("greeting"), "each side has its own: {contested:?}");
}
