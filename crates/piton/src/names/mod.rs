//! The names that the source documents give to what a program calls, in one place. They are thin: each is one of ours, or
//! a few lines over one; `docs/names.md` lists all of them with where they come from. Every example runs.
//!
//! # Steps
//!
//! ```
//! use std::time::Duration;
//! use piton::names::{
//!     CheckpointManager, ExecutionRecovery, ExecutionTracker, NamedStep, NewCheckpoint, execute_with_checkpoints,
//! };
//! use piton::run::{Outcome, RetryPolicy, Value};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let piton = piton::open("memory:").await?;
//! let steps = |works: bool| {
//!     vec![
//!         NamedStep::new("fetch", |_| async { Ok::<_, std::io::Error>(Value::from("facts")) }),
//!         NamedStep::new("send", move |facts: Value| async move {
//!             if works { Ok(facts) } else { Err(std::io::Error::other("no network")) }
//!         })
//!         .with_retry(RetryPolicy::NONE),
//!     ]
//! };
//! let id = "report".parse()?;
//! let failed = execute_with_checkpoints(&piton, Some(&id), "bees".into(), &steps(false)).await?;
//! assert!(matches!(failed.outcome, Outcome::Failed(_)));
//! let checkpoints = CheckpointManager::new(&piton);
//! let fetched = checkpoints.list_checkpoints(&id).await?.remove(0);
//! assert_eq!(checkpoints.load_checkpoint(&fetched.id).await?.state, "facts".into());
//!
//! let recovery = ExecutionRecovery::new(&piton);
//! recovery.rollback_to_checkpoint(&fetched.id).await?;
//! let again = recovery.resume_from_checkpoint(&fetched.id, &steps(false)).await?;
//! assert!(matches!(again.outcome, Outcome::Failed(_)));
//! let done = recovery.retry_from_step(&id, 1, &steps(true)).await?;
//! assert_eq!(done.outcome, Outcome::Completed("facts".into()));
//!
//! // A program that runs its steps itself has them recorded.
//! let (tracker, run) = (ExecutionTracker::new(&piton), piton.run("own").await?);
//! tracker.track_step(&run, "fetch", Value::Null, "facts".into(), Duration::from_millis(5)).await?;
//! let new = NewCheckpoint { state: "facts".into(), ..NewCheckpoint::after("fetch", 0)? };
//! let made = checkpoints.create_checkpoint(&run, new).await?;
//! tracker.track_error(&run, "send", Value::Null, &"no network").await?;
//! assert_eq!(tracker.get_execution_history(&"own".parse()?).await?.steps.len(), 2);
//! checkpoints.delete_checkpoint(&made).await?;
//! assert!(checkpoints.load_checkpoint(&made).await.is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Waiting, and what left a record
//!
//! What is trimmed from a conversation stays under a reference that begins with `blob://`.
//!
//! ```
//! use piton::names::{AgentContext, WaitFor};
//! use piton::run::{Wait, Waits, OpenRun, Run, RunError};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let piton = piton::open("memory:").await?;
//! let open = OpenRun { id: Some("deploy".parse()?), waits: Waits::Leave, ..OpenRun::default() };
//! let mut run = Run::open(&piton, open).await?;
//! let agent = AgentContext::open(&run).await?;
//! assert_eq!(agent.full(&format!("blob://{}", "0".repeat(64))).await?, None, "nothing was trimmed");
//! let wait = Wait { wait_for: WaitFor::HumanApproval, ..Wait::new("Deploy?") };
//! let asked: Result<bool, _> = run.wait_for("deploy", wait).await;
//! assert!(matches!(asked, Err(RunError::Waiting { .. })));
//! # Ok(())
//! # }
//! ```
//!
//! # Workflows
//!
//! ```
//! use std::sync::Arc;
//! use piton::names::{
//!     CheckpointError, CheckpointStore, Document, ExecutionStatus, Expected, FileCheckpointStore, Format,
//!     MemoryCheckpointStore, ResumePolicy, SafeStopSignal, SqliteCheckpointStore, SqliteOptions, WorkflowHandle,
//!     WorkflowRunner,
//! };
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let schema = Document::parse(
//!     "
//! nodes:
//!   - {id: in, data: {type: start, variables: [{variable: name}]}}
//!   - {id: ask, data: {type: human-input, prompt: 'Go on?', variables: [{name: why, type: string}]}}
//!   - {id: out, data: {type: end, outputs: [{variable: why, value_selector: [ask, why]}]}}
//! edges: [{source: in, target: ask}, {source: ask, target: out}]
//! ",
//!     Format::Yaml,
//! )?;
//! let stores: [Arc<dyn CheckpointStore>; 3] = [
//!     Arc::new(MemoryCheckpointStore::new()),
//!     Arc::new(FileCheckpointStore::open(folder.path().join("files"))?),
//!     Arc::new(SqliteCheckpointStore::open(folder.path().join("own.db"), SqliteOptions::default().with_create(true))?),
//! ];
//! for store in stores {
//!     // The three methods: save replaces, load gives None if absent, delete is idempotent.
//!     store.save("note", "x".into(), Expected::Any).await?;
//!     store.delete("note").await?;
//!     store.delete("note").await?;
//!     assert!(store.load("note").await?.is_none());
//!
//!     let start = |signal: &SafeStopSignal| {
//!         WorkflowRunner::builder(schema.clone())
//!             .user_inputs([("name".to_owned(), "Ada".into())].into())
//!             .checkpoint_store(Arc::clone(&store))
//!             .workflow_id("ticket")
//!             .resume_policy(ResumePolicy::Normal)
//!             .safe_stop_signal(signal.clone())
//!             .build()
//!             .run()
//!     };
//!     let signal = SafeStopSignal::new();
//!     let handle = start(&signal).await?;
//!     assert!(matches!(handle.wait_or_paused().await, ExecutionStatus::Paused { .. }));
//!     signal.trigger(30);
//!     signal.cancelled().await;
//!     assert!(signal.is_triggered() && signal.timeout_secs() == 30);
//!     assert!(matches!(handle.wait().await, ExecutionStatus::SafeStopped { checkpoint_saved: true, .. }));
//!
//!     let handle = start(&SafeStopSignal::new()).await?;
//!     let _events = handle.events();
//!     handle.wait_or_paused().await;
//!     assert!(matches!(handle.status(), ExecutionStatus::Paused { .. }));
//!     handle.update_variables([("conversation.mood".to_owned(), "good".into())]).await?;
//!     handle.resume_with_input([("why".to_owned(), "yes".into())].into()).await?;
//!     assert!(matches!(handle.wait().await, ExecutionStatus::Completed(_)));
//!     assert!(store.load("ticket").await?.is_none(), "nothing is left to resume");
//! }
//!
//! // At once, and without a checkpoint; or after what runs. A command after the end is an error.
//! let handle = WorkflowRunner::builder(schema).build().run().await?;
//! handle.abort("enough").await?;
//! assert!(matches!(handle.wait().await, ExecutionStatus::Failed(_)));
//! assert!(handle.safe_stop().await.is_err() && handle.pause().await.is_err() && handle.resume().await.is_err());
//!
//! // What a store may say.
//! let said = |error: CheckpointError| match error {
//!     CheckpointError::Serialization(_) | CheckpointError::Storage(_) => "it failed",
//!     CheckpointError::NotFound(_) | CheckpointError::Corrupted(_) => "it isn't there",
//!     CheckpointError::ResumeRejected(_) => "no",
//!     _ => "another writer was first",
//! };
//! assert_eq!(said(CheckpointError::Storage("full".to_owned())), "it failed");
//! # Ok(())
//! # }
//! ```
//!
//! # Other surroundings
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use piton::names::{
//!     Audit, AuditEntry, AuditError, AuditKind, ChangeSeverity, ContextFingerprint, Document, EnvironmentChange, Flow,
//!     FlowError, Format, Kinds, Limits, OutsideConfig, ResumeDiagnostic, ResumePolicy, SecurityLevel, Services,
//!     WorkflowRunner, diff_fingerprints,
//! };
//! #[derive(Default)]
//! struct Kept(Mutex<Vec<AuditKind>>);
//! impl Audit for Kept {
//!     fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
//!         self.0.lock().unwrap().push(entry.kind);
//!         Ok(())
//!     }
//! }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "
//! nodes:
//!   - {id: in, data: {type: start}}
//!   - {id: ask, data: {type: human-input, prompt: 'Go on?', variables: []}}
//!   - {id: out, data: {type: end, outputs: []}}
//! edges: [{source: in, target: ask}, {source: ask, target: out}]
//! ";
//! let (store, audit) = (piton::open("memory:").await?.store, Arc::new(Kept::default()));
//! let start = |level, policy| {
//!     let mut outside = OutsideConfig::at(level);
//!     outside.audit = Some(Arc::clone(&audit) as _);
//!     WorkflowRunner::builder(Document::parse(text, Format::Yaml).unwrap())
//!         .store(Arc::clone(&store))
//!         .workflow_id("order")
//!         .outside(outside)
//!         .resume_policy(policy)
//!         .build()
//!         .run()
//! };
//! let handle = start(SecurityLevel::Strict, ResumePolicy::Normal).await?;
//! handle.wait_or_paused().await;
//! handle.safe_stop().await?;
//! handle.wait().await;
//!
//! // Normal refuses with the whole report; Force goes on, and the audit log has it.
//! let refused = start(SecurityLevel::Permissive, ResumePolicy::Normal).await;
//! let Err(FlowError::ResumeRejected { workflow_id, diagnostic, changes }) = refused else { panic!() };
//! assert_eq!(workflow_id.as_str(), "order");
//! assert!(diagnostic.contains("Strict → Permissive"), "{diagnostic}");
//! let EnvironmentChange { component, description, severity } = &changes[0];
//! assert!(component == "security_level" && !description.is_empty() && *severity == ChangeSeverity::Danger);
//! start(SecurityLevel::Permissive, ResumePolicy::Force).await?.wait_or_paused().await;
//! assert!(audit.0.lock().unwrap().contains(&AuditKind::ForceResumeWithChanges));
//!
//! // The same by hand.
//! let document = Document::parse(text, Format::Yaml)?;
//! let flow = Flow::build(&document, &Kinds::builtin()).map_err(FlowError::Document)?;
//! let now = ContextFingerprint::capture(&document, flow.needs(), &Services::default(), &Limits::default());
//! let before = ContextFingerprint { schema_hash: "another".to_owned(), ..now.clone() };
//! let found: ResumeDiagnostic = diff_fingerprints(Some(&before), &now);
//! assert!(found.has_danger() && found.has_warnings() && found.report().starts_with("danger: schema"));
//! assert!(diff_fingerprints(Some(&now), &now).changes.is_empty());
//! assert!(ChangeSeverity::Info < ChangeSeverity::Warning && ChangeSeverity::Warning < ChangeSeverity::Danger);
//! # Ok(())
//! # }
//! ```
//!
//! # Variables
//!
//! ```
//! use piton::names::{Inputs, Selector, VariablePool};
//! let mut pool = VariablePool::default();
//! pool.set_scope("fetch", [("body".to_owned(), "text".into())].into());
//! let kept = pool.snapshot_for_checkpoint();
//! let again = VariablePool::restore_from_checkpoint(Inputs::new(), kept).unwrap();
//! assert_eq!(again.find(&Selector::of("fetch", "body")), Some(&"text".into()));
//! ```
//!
//! # Plugins
//!
//! ```
//! use std::sync::Arc;
//! use piton::names::{
//!     CheckpointStore, Document, Format, MemoryCheckpointStore, Plugin, PluginContext, PluginError, PluginMetadata,
//!     PluginPhase, WorkflowRunner, async_trait,
//! };
//! struct BringsStore(PluginMetadata, Arc<MemoryCheckpointStore>);
//! #[async_trait]
//! impl Plugin for BringsStore {
//!     fn metadata(&self) -> &PluginMetadata {
//!         &self.0
//!     }
//!     async fn register(&self, context: &mut PluginContext) -> Result<(), PluginError> {
//!         context.provide_service::<Arc<dyn CheckpointStore>>(Arc::clone(&self.1) as _)
//!     }
//! }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let schema = Document::parse("
//! # nodes:
//! #   - {id: in, data: {type: start}}
//! #   - {id: ask, data: {type: human-input, prompt: 'Go on?', variables: []}}
//! #   - {id: out, data: {type: end, outputs: []}}
//! # edges: [{source: in, target: ask}, {source: ask, target: out}]
//! # ", Format::Yaml)?;
//! assert_eq!(PluginMetadata::new("late", "1").phase, PluginPhase::Normal);
//! let store = Arc::new(MemoryCheckpointStore::new());
//! let plugin = BringsStore(PluginMetadata::new("stores", "1").bootstrap(), Arc::clone(&store));
//! WorkflowRunner::builder(schema).plugin(plugin).workflow_id("x").build().run().await?.wait_or_paused().await;
//! assert!(store.load("x").await?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Files
//!
//! [`files`] has checkpoints of a folder, `FileSnapshot`, `ChangeDetector`, and restores. Texts, writes and tools:
//!
//! ```
//! use piton::names::{
//!     ConflictResolution, DiffHunk, DiffLine, FileVersion, OptimisticLock, RelPath, Session, SessionOptions, TextDiff,
//!     ToolCall, ToolFailure, ToolOutcome, Workspace, WorkspaceOptions,
//! };
//! use piton::run::Value;
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let folder = scratch.path().canonicalize()?.join("work");
//! # std::fs::create_dir(&folder)?;
//! # let state = folder.with_file_name("state");
//! let diff = TextDiff::compute(b"a\nb\n", b"a\nc\nd\n");
//! let hunk: &DiffHunk = &diff.hunks[0];
//! assert_eq!((hunk.old_start, hunk.old_lines(), hunk.new_start, hunk.new_lines()), (1, 2, 1, 3));
//! assert!(hunk.lines.contains(&DiffLine::Removed(b"b\n".to_vec())));
//! assert_eq!(diff.apply(b"a\nb\n")?, b"a\nc\nd\n");
//! assert!(diff.apply(b"x\n").is_err(), "what doesn't fit is refused");
//!
//! let piton = piton::open("memory:").await?;
//! let workspace = Workspace::open(&piton, &folder, WorkspaceOptions { state, ..WorkspaceOptions::default() })?;
//! std::fs::write(folder.join("a.txt"), "one\n")?;
//! let lock: OptimisticLock = workspace.optimistic();
//! let read = lock.acquire(&RelPath::new(b"a.txt")?).await?;
//! let FileVersion { path, hash, mtime, .. } = &read;
//! assert!(path.as_bytes() == b"a.txt" && hash.is_some() && *mtime > 0);
//! lock.check_and_commit(&read, "two\n").await?;
//! assert!(lock.check_and_commit(&read, "three\n").await.is_err(), "it isn't what was read any more");
//!
//! // A tool between two checkpoints: what it did before it failed for good is taken back.
//! let mut session = Session::begin(&workspace, "agent").await?;
//! let call = |step: &str| ToolCall { step: step.parse().unwrap(), tool: "edit".to_owned(), input: Value::Null };
//! let failed = session.execute_with_checkpoint(call("one"), async {
//!     std::fs::write(folder.join("a.txt"), "broken\n").unwrap();
//!     Err::<((), Value), _>(ToolFailure { message: "crashed".to_owned(), recoverable: false })
//! });
//! assert!(matches!(failed.await?, ToolOutcome::RolledBack { .. }));
//! assert_eq!(std::fs::read_to_string(folder.join("a.txt"))?, "two\n");
//! let pre = session.create_pre_tool_checkpoint(call("two")).await?;
//! session.record_tool_execution(pre, Ok(Value::Null)).await?;
//! let (said, coverage) = session.run_with_checkpoints(SessionOptions::default(), async { "done" }).await;
//! assert!(said == "done" && coverage.problem.is_none());
//! session.end(Ok(Value::Null)).await?;
//! assert_eq!(ConflictResolution::default(), ConflictResolution::Merge);
//! # Ok(())
//! # }
//! ```

pub mod files;

pub use crate::executions::{
    CheckpointManager, ExecutionHistory, ExecutionRecovery, ExecutionTracker, NamedStep, NewCheckpoint,
    execute_with_checkpoints,
};
pub use piton_flow::{
    Audit, AuditEntry, AuditError, AuditKind, ChangeSeverity, Checkpoint, ConsumedResources, ContextFingerprint,
    Document, EnvironmentChange, ExecutionStatus, Flow, FlowError, Format, Inputs, Kinds, Limits, OutsideConfig,
    ResumeDiagnostic, ResumePolicy, SafeStopSignal, SecurityLevel, Selector, Services, TraversalState, VariablePool,
    WorkflowHandle, WorkflowRunner, diff_fingerprints,
};
pub use piton_flow::{Plugin, PluginContext, PluginError, PluginMetadata, PluginPhase};
pub use piton_runtime::AgentContext;
pub use piton_store::{CheckpointError, CheckpointStore, Expected, MemoryCheckpointStore, Saved, async_trait};
pub use piton_store_objects::FileCheckpointStore;
pub use piton_store_sqlite::{SqliteCheckpointStore, SqliteOptions};
pub use piton_types::WaitFor;
pub use piton_workspace::{
    ConflictResolution, DiffHunk, DiffLine, FileVersion, OptimisticLock, RelPath, Session, SessionOptions, TextDiff,
    ToolCall, ToolFailure, ToolOutcome, Workspace, WorkspaceOptions,
};
