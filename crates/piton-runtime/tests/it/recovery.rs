//! Taking a run up after damage, in changed surroundings, with and without a person to ask.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use piton_runtime::recovery::{
    Ask, CannotAsk, Change, ChangePolicies, Changes, Choice, DeletedPolicy, Environment, ModifiedPolicy, PortError,
    Question, Recovery, RecoveryError, RequiredFiles, Search, Severity, SystemEnvironment, UpstreamPolicy, Whole,
    newest_whole, stalled, validate,
};
use piton_runtime::{AgentContext, Context, LeaseWatch, Message, OpenRun, Run};
use piton_store::{Store, StoreError};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::flip::{Change as Flip, Outcome, Sweep};
use piton_types::{
    BlobId, CheckpointRecord, Progress, RecoveryInfo, RequiredFile, RequiredProgram, Requirements, Trigger, Value,
};

use crate::support::{memory, open, process, run_id};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A closed store with a run of four checkpoints: a conversation that grows, of a few kilobytes.
fn damaged_soon(folder: &Path) -> Vec<Value> {
    block_on(async {
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default()).unwrap());
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let mut agent = AgentContext::open(&run).await.unwrap();
        let mut states = Vec::new();
        for n in 0..4 {
            for m in 0..8 {
                let text: String = (0..40).map(|k| format!("{n}/{m}/{k} ")).collect();
                agent.push_message(&Message::user(text)).await.unwrap();
            }
            let mut record = CheckpointRecord::by(Trigger::StepCompleted).described(format!("round {n}"));
            record.iteration = n;
            agent.save(&run, &record).await.unwrap();
            states.push(run.part("conversation").await.unwrap().unwrap());
            run.step("think", n, async |n| Ok::<_, String>(n)).await.unwrap();
        }
        drop(run);
        store.close().await.unwrap();
        states
    })
}

/// What became of a damage, and how far back the search went.
async fn look(folder: &Path, states: &[Value], passed: &Mutex<[u32; 5]>) -> Outcome {
    let detected = |error: StoreError| match error {
        StoreError::Corrupt { .. } | StoreError::Invalid { .. } | StoreError::TooNew { .. } => {
            Outcome::Detected("refused".to_owned())
        }
        other => Outcome::Silent(format!("not said to be damage: {other}")),
    };
    let store: Arc<dyn Store> = match SqliteStore::open(folder.join("store.db"), SqliteOptions::default()) {
        Ok(store) => Arc::new(store),
        Err(error) => return detected(error),
    };
    let Search { whole, damaged } = match newest_whole(&store, &run_id()).await {
        Ok(search) => search,
        Err(StoreError::NotFound { what }) => return Outcome::Lost(what),
        Err(error) => return detected(error),
    };
    let Some(whole) = whole else {
        passed.lock().unwrap()[4] += 1;
        return if damaged.is_empty() {
            Outcome::Lost("every checkpoint".to_owned())
        } else {
            Outcome::Detected("nothing is whole".to_owned())
        };
    };
    let value = whole.log.load(&whole.entry.parts[&"conversation".into()]).await.unwrap();
    let round = whole.record.unwrap().iteration as usize;
    if value != states[round] {
        return Outcome::Silent(format!("round {round} has another state"));
    }
    passed.lock().unwrap()[3 - round] += 1;
    match (round, damaged.is_empty()) {
        (3, _) => Outcome::Same,
        (_, false) => Outcome::Detected(format!("fell back to round {round}")),
        (_, true) => Outcome::Lost(format!("fell back to round {round} without a word")),
    }
}

/// V1 with real damage: bytes of the database are flipped. Whatever is found is exactly what was saved, a fallback
/// is never silent, and the newest checkpoint is passed over only for damage.
#[test]
fn whatever_byte_is_damaged_the_newest_whole_checkpoint_is_found_or_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let states = damaged_soon(folder.path());
    let passed = Mutex::new([0; 5]);
    let sweep = Sweep { changes: vec![Flip::Xor(0x10)], start: 3, stride: 61 };
    let tally = sweep.run(folder.path(), |copy, _| block_on(look(copy, &states, &passed)));
    let passed = passed.into_inner().unwrap();
    println!("{tally}; rounds passed over 0, 1, 2, 3, all: {passed:?}");
    assert_eq!((tally.lost, tally.silent), (0, 0), "{tally}");
    assert!(tally.total() > 400, "{tally}");
    assert!(passed[0] > 0 && passed[1..4].iter().sum::<u32>() > 20, "the damage never mattered: {passed:?}");
}

/// A checkpoint whose state is damaged but whose entry isn't: the fallback, the report and the notice say so.
#[test]
fn a_damaged_state_is_passed_over_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    damaged_soon(folder.path());
    let file = folder.path().join("store.db");
    let mut bytes = std::fs::read(&file).unwrap();
    // In the text of the last round, which only the newest checkpoint has.
    let at = bytes.windows(6).position(|window| window == b"3/5/20").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&file, SqliteOptions::default()).unwrap());
        let context = process(&store);
        let environment = SystemEnvironment::new(|_| None);
        let recovery = Recovery {
            context: &context,
            environment: &environment,
            changes: &[],
            policies: ChangePolicies::default(),
            ask: &CannotAsk,
        };
        let examined = recovery.examine(&run_id()).await.unwrap();
        assert_eq!(examined.search.whole.unwrap().checkpoint.to_string(), "a-run@6");
        assert_eq!(examined.report.worst(), Some(Severity::Warning));
        assert!(!examined.readable, "only a fork can go on");
        // Whether the run's name can still be read depends on which page it is on.
        let notice = examined.notice.to_string();
        let rest =
            "goes on from checkpoint a-run@6, iteration 2; last: round 2; 1 newer entry is damaged and was passed over";
        assert!(notice.starts_with("run a-run") && notice.ends_with(rest), "{notice}");
    });
}

struct Fake {
    folder: bool,
    files: BTreeMap<String, BlobId>,
    programs: BTreeMap<String, &'static str>,
    variables: Vec<&'static str>,
    free: Option<u64>,
    hosts: BTreeMap<String, bool>,
}

#[async_trait]
impl Environment for Fake {
    async fn is_folder(&self, _path: &Path) -> bool {
        self.folder
    }

    async fn file_hash(&self, path: &Path) -> std::io::Result<Option<BlobId>> {
        let path = path.to_str().unwrap();
        if path.ends_with("locked") { Err(std::io::Error::other("denied")) } else { Ok(self.files.get(path).copied()) }
    }

    async fn has_program(&self, name: &str) -> bool {
        self.programs.contains_key(name)
    }

    async fn program_version(&self, name: &str) -> Option<String> {
        self.programs.get(name).filter(|said| !said.is_empty()).map(|said| (*said).to_owned())
    }

    fn has_variable(&self, name: &str) -> bool {
        self.variables.contains(&name)
    }

    async fn free_bytes(&self, _path: &Path) -> Option<u64> {
        self.free
    }

    async fn reaches(&self, host: &str) -> Option<bool> {
        self.hosts.get(host).copied()
    }
}

fn hash(n: u8) -> BlobId {
    BlobId::new([n; 32])
}

/// A run with one checkpoint that asks for much.
async fn demanding() -> Context {
    let store = memory();
    let context = process(&store);
    let run = Run::open(&context, open()).await.unwrap();
    let mut agent = AgentContext::open(&run).await.unwrap();
    let file = |path: &str, hash| RequiredFile { path: path.into(), hash };
    let program =
        |name: &str, version: Option<&str>| RequiredProgram { name: name.into(), version: version.map(Into::into) };
    let record = CheckpointRecord {
        iteration: 3,
        progress: Some(Progress::percent(40)),
        recovery: RecoveryInfo {
            resume_point: Some("write the report".into()),
            required_context: vec!["conversation".into(), "plan".into()],
            requirements: Requirements {
                files: vec![
                    file("same", Some(hash(1))),
                    file("changed", Some(hash(2))),
                    file("gone", None),
                    file("locked", None),
                ],
                programs: vec![
                    program("git", Some("2.40")),
                    program("old", Some("3.1")),
                    program("none", None),
                    program("mute", Some("1")),
                ],
                variables: vec!["HOME".into(), "TOKEN".into()],
                disk_bytes: Some(1000),
                hosts: vec!["up:1".into(), "down:1".into(), "unlisted:1".into()],
            },
            working_directory: Some("/work".into()),
        },
        ..CheckpointRecord::by(Trigger::Manual).described("halfway")
    };
    agent.save(&run, &record).await.unwrap();
    context
}

fn surroundings(folder: bool) -> Fake {
    Fake {
        folder,
        files: [("/work/same".to_owned(), hash(1)), ("/work/changed".to_owned(), hash(9))].into(),
        programs: [("git".to_owned(), "git version 2.43.0"), ("old".to_owned(), "old 3.0.9"), ("mute".to_owned(), "")]
            .into(),
        variables: vec!["HOME"],
        free: Some(999),
        hosts: [("up:1".to_owned(), true), ("down:1".to_owned(), false)].into(),
    }
}

/// C6: structure, integrity, environment.
#[tokio::test]
async fn the_report_has_everything_that_is_not_as_it_should_be() {
    let context = demanding().await;
    let search = newest_whole(&context.store, &run_id()).await.unwrap();
    insta::assert_snapshot!(validate(&search, &surroundings(false)).await, @r#"
    checkpoint a-run@2: 24 checks
    error: structure: it needs the part "plan", which it doesn't have
    error: environment: the working directory /work doesn't exist
    warning: environment: the file "changed" has changed
    warning: environment: the file "gone" is missing
    error: environment: the file "locked" can't be read: denied
    error: environment: "old" has version 3.0.9, and 3.1 is needed
    error: environment: the program "none" isn't installed
    info: environment: the version of "mute" wasn't asked
    error: environment: the environment variable TOKEN isn't set
    error: environment: 999 bytes are free on the disk, and 1000 are needed
    error: environment: down:1 doesn't answer
    info: environment: whether unlisted:1 answers wasn't tried
    "#);
}

/// Answers in order, and remembers what it was asked.
#[derive(Default)]
struct Script {
    answers: Mutex<Vec<Choice>>,
    asked: Mutex<Vec<Question>>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Choice>) -> Self {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        Self { answers: Mutex::new(answers), asked: Mutex::default() }
    }
}

#[async_trait]
impl Ask for Script {
    async fn ask(&self, question: &Question) -> Option<Choice> {
        self.asked.lock().unwrap().push(question.clone());
        self.answers.lock().unwrap().pop()
    }
}

/// A workspace that can do everything, and remembers what it did.
#[derive(Default)]
struct Workspace(Mutex<Vec<(Change, Choice)>>);

#[async_trait]
impl Changes for Workspace {
    async fn since(&self, _checkpoint: &Whole) -> Result<Vec<Change>, PortError> {
        Ok(vec![
            Change::FileModified { path: "a.rs".into() },
            Change::FileDeleted { path: "b.rs".into() },
            Change::UpstreamCommits { commits: 3, head: "abc123".into() },
        ])
    }

    fn can(&self, _choice: Choice) -> bool {
        true
    }

    async fn carry_out(&self, change: &Change, choice: Choice) -> Result<(), PortError> {
        self.0.lock().unwrap().push((change.clone(), choice));
        Ok(())
    }
}

async fn plain() -> Context {
    let context = process(&memory());
    let run = Run::open(&context, open()).await.unwrap();
    let mut agent = AgentContext::open(&run).await.unwrap();
    agent.save(&run, &CheckpointRecord::by(Trigger::Manual)).await.unwrap();
    context
}

/// V2: by default everything is asked; with no person to ask it stops with a report, and nothing was done.
#[tokio::test]
async fn without_anybody_to_ask_it_stops_with_a_report() {
    let context = plain().await;
    let workspace = Workspace::default();
    let recovery = Recovery {
        context: &context,
        environment: &surroundings(true),
        changes: &[&workspace],
        policies: ChangePolicies { modified: ModifiedPolicy::Merge, ..ChangePolicies::default() },
        ask: &CannotAsk,
    };
    let Err(RecoveryError::Stopped(stopped)) = recovery.examine(&run_id()).await else { panic!("it went on") };
    insta::assert_snapshot!(stopped, @r#"
    run a-run doesn't go on by itself
    the file "b.rs" was deleted since the checkpoint: restore, skip, abort?
    upstream has 3 new commits, up to abc123: ignore, rebase, abort?
    checkpoint a-run@2: 4 checks, all well
    "#);
    assert_eq!(*workspace.0.lock().unwrap(), [], "not even what the policy decided");
}

#[tokio::test]
async fn policies_and_answers_settle_what_changed() {
    let context = plain().await;
    let run = |policies, ask: Arc<dyn Ask>| {
        let context = context.clone();
        async move {
            let workspace = Workspace::default();
            let environment = surroundings(true);
            let recovery =
                Recovery { context: &context, environment: &environment, changes: &[&workspace], policies, ask: &*ask };
            let examined = recovery.examine(&run_id()).await;
            (examined.map(|examined| examined.settled), workspace.0.into_inner().unwrap())
        }
    };
    let policies = ChangePolicies {
        modified: ModifiedPolicy::Merge,
        deleted: DeletedPolicy::Restore,
        upstream: UpstreamPolicy::Ignore,
        paths: Vec::new(),
        fallback: false,
    };
    let (settled, done) = run(policies, Arc::new(CannotAsk)).await;
    assert_eq!(settled.unwrap(), done);
    assert_eq!(
        done.iter().map(|(_, choice)| *choice).collect::<Vec<_>>(),
        [Choice::Merge, Choice::Restore, Choice::Ignore]
    );

    let script = Arc::new(Script::new([Choice::UseCheckpoint, Choice::Skip, Choice::Rebase]));
    let (_, done) = run(ChangePolicies::default(), Arc::clone(&script) as _).await;
    assert_eq!(
        done.iter().map(|(_, choice)| *choice).collect::<Vec<_>>(),
        [Choice::UseCheckpoint, Choice::Skip, Choice::Rebase]
    );
    assert_eq!(script.asked.lock().unwrap().len(), 3);

    // An abort stops everything; an answer that isn't offered is none.
    for answers in
        [[Choice::UseCurrent, Choice::Abort, Choice::Ignore], [Choice::UseCurrent, Choice::Rebase, Choice::Ignore]]
    {
        let (settled, done) = run(ChangePolicies::default(), Arc::new(Script::new(answers))).await;
        assert!(matches!(settled, Err(RecoveryError::Stopped(_))) && done.is_empty(), "{answers:?}");
    }
}

/// V2 for the files that a checkpoint names: only what can be done is offered, and errors of the report are asked too.
#[tokio::test]
async fn required_files_and_errors_of_the_report_are_asked() {
    let context = demanding().await;
    let environment = Fake { files: BTreeMap::new(), ..surroundings(true) };
    let required = RequiredFiles::new(&environment);
    let go_on = [Choice::Skip; 3].into_iter().chain([Choice::Ignore; 7]);
    let script = Script::new(go_on);
    let recovery = Recovery {
        context: &context,
        environment: &environment,
        changes: &[&required],
        policies: ChangePolicies { deleted: DeletedPolicy::Restore, ..ChangePolicies::default() },
        ask: &script,
    };
    let examined = recovery.examine(&run_id()).await.unwrap();
    assert_eq!(examined.settled.len(), 3);
    let asked = script.asked.into_inner().unwrap();
    assert_eq!(asked[0].choices, [Choice::Skip, Choice::Abort], "the contents aren't kept, so restoring isn't offered");
    insta::assert_snapshot!(examined.notice, @"run a-run (a run) goes on from checkpoint a-run@2, iteration 3; last: halfway; next: write the report");
}

#[tokio::test]
async fn a_policy_file_names_what_differs() {
    let policies: ChangePolicies = toml::from_str("modified = 'use_current'").unwrap();
    assert_eq!(policies, ChangePolicies { modified: ModifiedPolicy::UseCurrent, ..ChangePolicies::default() });
    assert!(toml::from_str::<ChangePolicies>("modified = 'rebase'").is_err());
}

/// The system itself: files, programs, variables, space, hosts; and that a checkpoint can't make it run or call
/// anything.
#[tokio::test]
async fn the_system_is_asked_only_what_the_caller_lists() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("tool");
    std::fs::write(&tool, "#!/bin/sh\necho tool 1.2.3\ntouch \"$(dirname \"$0\")/ran\"\n").unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(folder.path().join("plain"), "x").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let path: OsString = std::env::join_paths([folder.path(), Path::new("/bin")]).unwrap();
    let system = SystemEnvironment::new(move |name| (name == "PATH").then(|| path.clone()));

    assert!(system.has_program("tool").await && system.has_program("sh").await);
    assert!(
        !system.has_program("plain").await && !system.has_program("../bin/sh").await && !system.has_program("").await
    );
    assert_eq!(system.program_version("tool").await, None);
    assert_eq!(system.reaches(&host).await, None);
    assert!(!folder.path().join("ran").exists());
    let listed =
        system.clone().asking_programs(["tool", "none"]).reaching_hosts([host.clone(), "127.0.0.1:1".to_owned()]);
    assert_eq!(listed.program_version("tool").await.as_deref(), Some("tool 1.2.3\n"));
    assert_eq!(listed.program_version("none").await, None);
    assert_eq!((listed.reaches(&host).await, listed.reaches("127.0.0.1:1").await), (Some(true), Some(false)));

    assert!(system.has_variable("PATH") && !system.has_variable("HOME"));
    assert!(system.is_folder(folder.path()).await && !system.is_folder(&tool).await);
    let hashed = system.file_hash(&folder.path().join("plain")).await.unwrap();
    assert_eq!(hashed, Some(BlobId::new(*blake3::hash(b"x").as_bytes())));
    assert_eq!(system.file_hash(&folder.path().join("gone")).await.unwrap(), None);
    assert!(system.file_hash(Path::new("/dev/zero")).await.is_err(), "a device is not read");
    assert!(system.free_bytes(folder.path()).await.unwrap() > 0);
}

/// R1: a run in progress whose driver is dead is found; one that is driven, or over, isn't.
#[tokio::test]
async fn stalled_runs_are_found() {
    let store = memory();
    let driven = Context::system(Arc::clone(&store));
    let alive = Run::open(&driven, OpenRun { id: Some("alive".parse().unwrap()), ..open() }).await.unwrap();
    drop(Run::open(&process(&store), open()).await.unwrap());
    let over = Run::open(&process(&store), OpenRun { id: Some("over".parse().unwrap()), ..open() }).await.unwrap();
    over.complete(()).await.unwrap();
    let found = stalled(&driven, &mut LeaseWatch::default(), Duration::from_secs(30)).await.unwrap().found;
    assert_eq!(found.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["a-run"]);
    drop(alive);
}

/// What isn't there isn't damage.
#[tokio::test]
async fn a_run_that_does_not_exist_is_said_not_to() {
    assert!(matches!(newest_whole(&memory(), &run_id()).await, Err(StoreError::NotFound { .. })));
    let context = process(&memory());
    drop(Run::open(&context, open()).await.unwrap());
    let search = newest_whole(&context.store, &run_id()).await.unwrap();
    assert!(search.whole.is_none() && search.damaged.is_empty());
    assert!(validate(&search, &surroundings(true)).await.is_sound(), "it goes on from its steps");
}
