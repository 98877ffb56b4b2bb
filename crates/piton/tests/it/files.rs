//! Files and commits that changed while a run stood still, and a model that puts versions together. V2, W11.

use std::sync::Arc;
use std::time::Duration;

use piton::engine::{FileChanges, ModelResolver, ModelResolverOptions, TellingAsk};
use piton_model::chat::{Provider, Wire};
use piton_runtime::recovery::{
    CannotAsk, ChangePolicies, Changes, Choice, DeletedPolicy, ModifiedPolicy, PathPolicy, Recovery, RecoveryError,
    SystemEnvironment,
};
use piton_runtime::{Context, Listener, OpenRun, Run};
use piton_store_objects::ObjectStore;
use piton_testing::scratch::Scratch;
use piton_testing::web::{Answer, Web};
use piton_types::{CheckpointKind, Event, RunId, Value};
use piton_workspace::{
    Ask, Conflict, ConflictResolution, ContestedText, Goal, Record, RelPath, Resolver, RestoreOptions, Session,
    Workspace, WorkspaceError, WorkspaceOptions,
};

struct World {
    scratch: Scratch,
    context: Context,
    workspace: Workspace,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::in_memory();
        std::fs::create_dir(scratch.join("work")).unwrap();
        let context = Context::system(Arc::new(ObjectStore::in_memory()));
        let options = WorkspaceOptions { state: scratch.join("state"), ..WorkspaceOptions::default() };
        let workspace = Workspace::open(&context, &scratch.join("work"), options).unwrap();
        Self { scratch, context, workspace }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.scratch.join("work").join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.scratch.join("work").join(name)).unwrap()
    }

    async fn save(&self, run: &RunId) {
        let role = piton_workspace::Role::Saved;
        let record = Record { run: Some(run.clone()), ..Record::new(CheckpointKind::Auto, role, "") };
        self.workspace.save(record, &Arc::default()).await.unwrap();
    }
}

const NINE: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

/// A run that changed files, died, and whose files somebody then changed.
async fn died(world: &World) -> RunId {
    for name in ["merged", "same", "kept", "gone", "deep"] {
        world.write(name, NINE);
    }
    let id: RunId = "one".parse().unwrap();
    let folder = Some(world.workspace.root().to_string_lossy().into_owned());
    let open = OpenRun { id: Some(id.clone()), folder, ..OpenRun::default() };
    let run = Run::open(&world.context, open).await.unwrap();
    world.save(&id).await;
    world.write("merged", &NINE.replace('1', "agent"));
    world.write("same", &NINE.replace('1', "agent"));
    world.save(&id).await;
    drop(run);
    world.write("merged", &NINE.replace('1', "agent").replace('9', "mine"));
    world.write("kept", "mine\n");
    world.write("deep", "mine\n");
    std::fs::remove_file(world.scratch.join("work/gone")).unwrap();
    world.write("new", "mine\n");
    id
}

async fn recover(world: &World, run: &RunId, policies: ChangePolicies) -> Result<Vec<(String, Choice)>, RecoveryError> {
    let environment = SystemEnvironment::new(|_| None);
    let files = FileChanges::new(world.workspace.clone());
    let changes: [&dyn Changes; 1] = [&files];
    let recovery =
        Recovery { context: &world.context, environment: &environment, changes: &changes, policies, ask: &CannotAsk };
    let examined = recovery.examine(run).await?;
    Ok(examined.settled.into_iter().map(|(change, choice)| (change.to_string(), choice)).collect())
}

/// V2: every change is settled by the policy of its kind, or of its path; without a policy and somebody to ask,
/// nothing is done.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_changed_are_settled_by_policy() {
    let world = World::new();
    let run = died(&world).await;
    let Err(RecoveryError::Stopped(stopped)) = recover(&world, &run, ChangePolicies::default()).await else {
        panic!("it guessed")
    };
    assert_eq!(stopped.unanswered.len(), 4, "{stopped}");
    let policies: ChangePolicies = piton_types::from_value(
        piton_types::from_json(
            br#"{"modified": "merge", "deleted": "restore", "paths": [
                {"path": "kept", "modified": "use_current"}, {"path": "deep", "modified": "use_checkpoint"}]}"#,
        )
        .unwrap(),
    )
    .unwrap();
    assert_eq!(policies.modified, ModifiedPolicy::Merge);
    let settled = recover(&world, &run, policies.clone()).await.unwrap();
    assert_eq!(settled.len(), 4, "{settled:?}");
    assert_eq!(world.read("merged"), NINE.replace('1', "agent").replace('9', "mine"));
    assert_eq!((world.read("kept"), world.read("new")), ("mine\n".to_owned(), "mine\n".to_owned()));
    assert_eq!((world.read("deep"), world.read("gone")), (NINE.to_owned(), NINE.to_owned()));
    // To repeat it does no harm.
    recover(&world, &run, policies).await.unwrap();
    assert_eq!(world.read("kept"), "mine\n");
    // What can't be merged is said, and left.
    world.write("same", &NINE.replace('1', "mine"));
    let paths = vec![PathPolicy { path: "kept".to_owned(), modified: Some(ModifiedPolicy::UseCurrent), deleted: None }];
    let policies = ChangePolicies { modified: ModifiedPolicy::Merge, paths, ..ChangePolicies::default() };
    let error = recover(&world, &run, policies).await.unwrap_err();
    assert!(matches!(error, RecoveryError::Port { .. }), "{error}");
    assert_eq!(world.read("same"), NINE.replace('1', "mine"));
}

/// W11: a merge of a resume that is in its own way is put to a resolver, with what the run had made of the file; what it
/// answers is checked and written.
#[tokio::test(flavor = "multi_thread")]
async fn a_contested_merge_of_a_resume_is_put_to_a_resolver() {
    struct Joins;
    impl Resolver for Joins {
        fn resolve(&self, contested: &ContestedText) -> Result<Vec<u8>, String> {
            assert!(contested.checkpoint_intent.contains("run one"), "{contested:?}");
            assert!(contested.checkpoint.starts_with(b"agent") && contested.current.starts_with(b"mine"));
            Ok([b"agent\n".as_slice(), &contested.current[..]].concat())
        }
    }
    let world = World::new();
    let run = died(&world).await;
    world.write("same", &NINE.replace('1', "mine"));
    let files = FileChanges::new(world.workspace.clone()).resolving(Arc::new(Joins));
    let (environment, changes): (_, [&dyn Changes; 1]) = (SystemEnvironment::new(|_| None), [&files]);
    let policies = ChangePolicies {
        modified: ModifiedPolicy::Merge,
        deleted: DeletedPolicy::Skip,
        paths: ["kept", "deep"]
            .map(|path| PathPolicy { path: path.to_owned(), modified: Some(ModifiedPolicy::UseCurrent), deleted: None })
            .into(),
        ..ChangePolicies::default()
    };
    let recovery =
        Recovery { context: &world.context, environment: &environment, changes: &changes, policies, ask: &CannotAsk };
    recovery.examine(&run).await.unwrap();
    assert!(world.read("same").starts_with("agent\nmine\n"), "{}", world.read("same"));
}

/// W6: whoever listens is told of every conflict that somebody is asked about.
#[tokio::test(flavor = "multi_thread")]
async fn conflicts_that_are_asked_about_are_told_as_events() {
    struct Current;
    impl Ask for Current {
        fn ask(&self, _: &Conflict) -> ConflictResolution {
            ConflictResolution::PreferCurrent
        }
    }
    let world = World::new();
    world.write("a", NINE);
    let start = world.workspace.save(Record::manual(""), &Arc::default()).await.unwrap();
    let run = "agent".parse().unwrap();
    let session = Session::begin_as(&world.workspace, run, "agent", Value::Null, &Arc::default()).await.unwrap();
    world.write("a", &NINE.replace('1', "agent"));
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("a", &NINE.replace('1', "mine"));
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let events = {
        let told = Arc::clone(&told);
        Listener::new(move |event| told.lock().unwrap().push(event.clone()))
    };
    let ask = Arc::new(TellingAsk::new(&world.workspace, events, Arc::new(Current)));
    let options = RestoreOptions { resolution: ConflictResolution::Ask, ask, ..RestoreOptions::default() };
    let goal = Goal::Checkpoint(start.checkpoint);
    let done = world.workspace.restore_to(&goal, &options, &Arc::default()).await.unwrap();
    assert_eq!((done.files_restored, world.read("a")), (0, NINE.replace('1', "mine")));
    let told = told.lock().unwrap();
    let [Event::ConflictAsked { run, path, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((run, &path[..]), (&world.workspace.run(), "a"));
}

/// A model on loopback that says what it is told to, with the seals of the question in place of BEGIN and END.
fn answering(answer: &'static str, delay: Duration) -> Web {
    Web::start(move |asked| {
        std::thread::sleep(delay);
        let seal: String = asked.body.split("BEGIN-").nth(1).unwrap().chars().take(16).collect();
        let text = answer.replace("BEGIN", &format!("BEGIN-{seal}")).replace("END", &format!("END-{seal}"));
        Answer::chat(asked, &[&text])
    })
}

fn resolver(model: &Web, patience: Duration) -> ModelResolver {
    resolver_at(&model.address, patience)
}

fn resolver_at(address: &str, patience: Duration) -> ModelResolver {
    let base_url = Some(format!("{address}/v1"));
    let provider = Provider { base_url, ..Provider::new(Wire::OpenAi) };
    ModelResolver::new(provider, ModelResolverOptions { model: Some("m".to_owned()), patience }).unwrap()
}

fn contested() -> ContestedText {
    ContestedText {
        path: RelPath::new(b"a").unwrap(),
        base: "b\n".into(),
        current: "mine\n".into(),
        checkpoint: "old\n".into(),
        current_intent: "edits".to_owned(),
        checkpoint_intent: "a return".to_owned(),
    }
}

async fn resolve(resolver: ModelResolver) -> Result<Vec<u8>, String> {
    tokio::task::spawn_blocking(move || resolver.resolve(&contested())).await.unwrap()
}

/// W11: the whole way, from a conflict to the file, through a server that speaks the protocol; it is asked once though
/// the plan is made several times.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_puts_two_versions_together() {
    let world = World::new();
    world.write("a", "old\n");
    let start = world.workspace.save(Record::manual(""), &Arc::default()).await.unwrap();
    let session = Session::begin_as(&world.workspace, "agent".parse().unwrap(), "agent", Value::Null, &Arc::default())
        .await
        .unwrap();
    world.write("a", "agent\n");
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("a", "mine\n");
    let model = answering("Here you are:\nBEGIN\nold\nmine\nEND\nGood luck!", Duration::ZERO);
    let options = RestoreOptions {
        resolution: ConflictResolution::Resolve,
        resolver: Some(Arc::new(resolver(&model, Duration::from_secs(30)))),
        ..RestoreOptions::default()
    };
    let goal = Goal::Checkpoint(start.checkpoint.clone());
    let timeline = world.workspace.timeline().await.unwrap();
    let planned = world.workspace.plan_restore(&timeline, &goal, &options, &Arc::default()).await.unwrap();
    let plan = planned.plan;
    assert_eq!(plan.merged_text(&plan.changes[0]), Some(&b"old\nmine\n"[..]), "for a person to look at");
    let done = world.workspace.restore_to(&goal, &options, &Arc::default()).await.unwrap();
    assert_eq!((world.read("a").as_str(), model.asked()), ("old\nmine\n", 1));
    let note = done.note();
    assert!(note.starts_with("The files of this folder were returned to checkpoint"), "{note}");
    assert!(note.ends_with("- a: merged with edits of another program"), "{note}");

    let liar = answering("BEGIN\n<<<<<<< mine\nmine\n=======\nold\n>>>>>>> old\nEND", Duration::ZERO);
    world.workspace.restore_to(&Goal::Undo(None), &RestoreOptions::default(), &Arc::default()).await.unwrap();
    let options = RestoreOptions { resolver: Some(Arc::new(resolver(&liar, Duration::from_secs(30)))), ..options };
    let refused = world.workspace.restore_to(&goal, &options, &Arc::default()).await;
    assert!(matches!(refused, Err(WorkspaceError::Conflicts { .. })), "{refused:?}");
    assert_eq!(world.read("a"), "mine\n");
}

/// A model that doesn't answer in time, in form, or at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_does_not_answer_properly_is_no_help() {
    let slow = answering("BEGIN\nold\nmine\nEND", Duration::from_secs(5));
    let error = resolve(resolver(&slow, Duration::from_millis(200))).await.unwrap_err();
    assert!(error.contains("too long") || error.contains("within"), "{error}");
    let chatty = answering("I would merge them so: old, mine.", Duration::ZERO);
    assert!(resolve(resolver(&chatty, Duration::from_secs(9))).await.unwrap_err().contains("form"));
    assert!(resolve(resolver_at("http://127.0.0.1:1", Duration::from_secs(9))).await.is_err());
    let good = answering("BEGIN\nold\nmine\nEND", Duration::ZERO);
    assert_eq!(resolve(resolver(&good, Duration::from_secs(9))).await.unwrap(), b"old\nmine\n");
}
