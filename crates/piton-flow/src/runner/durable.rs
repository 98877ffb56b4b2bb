//! Workflows as durable runs. Entry 0 of the run's log has the document and the inputs, so a process
//! that goes on with the run needs nothing but its id; what nodes give is the journal's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use piton_runtime::{Context, Ending, Failure, Listener, OpenRun, Run, RunError};
use piton_store::StoreError;
use piton_types::{
    Completed, Durability, Event, Holder, IllegalMove, RunId, RunKind, RunState, RunStatus, StepPath, TokenUsage,
    Trigger, Value, Verification, from_value, to_value,
};

use super::attend::{Rest, attend};
use super::commands::Commands;
use super::memory::RandomIds;
use super::questions::RunInbox;
use super::requests::RunOrders;
use super::schedule::Schedule;
use super::signal::SafeStopSignal;
use super::status::{OpenQuestion, StopReport};
use super::updates;
use crate::activity::Activity;
use crate::body::{ConfigFile, FlowBody};
use crate::burst::writing;
use crate::control::Control;
use crate::debug::Debugger;
use crate::document::Document;
use crate::durable::RunJournal;
use crate::engine::{self, Finished, Host, Inputs, Limits, Outputs};
use crate::error::FlowError;
use crate::events::EventSink;
use crate::fingerprint::ContextFingerprint;
use crate::flow::{Flow, Given};
use crate::format::Format;
use crate::journal::JournalError;
use crate::kind::Kinds;
use crate::need::Services;
use crate::resume::{Admitted, Gate, ResumePolicy};

/// A workflow to be started, or gone on with.
#[derive(Debug, Clone)]
pub struct StartFlow {
    /// The text of the document.
    pub document: String,
    /// How it is written.
    pub format: Format,
    /// What the workflow is given.
    pub inputs: Inputs,
    /// System variables, such as `query` or `user_id`, in the place of those that every run has.
    pub system: BTreeMap<String, Value>,
    /// Conversation variables, in the place of those that the document begins with.
    pub conversation: BTreeMap<String, Value>,
    /// The run's id; without one, a generated one.
    pub id: Option<RunId>,
    /// What the run is called.
    pub name: String,
    /// The working directory that it belongs to, and that its programs run in.
    pub folder: Option<String>,
    /// What the run is found by beside its name.
    pub labels: BTreeSet<String>,
    /// The configuration that its caller has read.
    pub config: Option<ConfigFile>,
    /// How urgent it is: the larger, the sooner.
    pub priority: i32,
    /// A guess at the work, in whatever unit the caller uses.
    pub estimated_complexity: Option<f64>,
    /// How it is driven.
    pub options: FlowOptions,
}

/// How a workflow is driven. None of it is recorded: a caller that goes on with the run says it again.
#[derive(Debug, Clone)]
pub struct FlowOptions {
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// Who is told what happens.
    pub events: Listener,
    /// What nodes may use.
    pub services: Services,
    /// The kinds of nodes that there are.
    pub kinds: Kinds,
    /// How far the run may go.
    pub limits: Limits,
    /// Stops the run.
    pub stop: SafeStopSignal,
    /// What to do if the surroundings of a run changed since it was begun.
    pub policy: ResumePolicy,
    /// What goes along with the run.
    pub companion: Option<Arc<dyn Companion>>,
    /// Where the run's programs work now, if its folder was moved since it was begun.
    pub folder: Option<PathBuf>,
    /// A holder whose time is up by the clock of the store: the run is taken over from it.
    pub overdue: Option<Holder>,
    /// Holds the run up at its nodes.
    pub debugger: Option<Arc<dyn Debugger>>,
}

/// Goes along with a run for as long as this process drives it: to checkpoint its files, say, or to look whether
/// its repository moves.
#[async_trait]
pub trait Companion: fmt::Debug + Send + Sync {
    /// Before the first node. An error ends the drive before anything was done.
    async fn begin(&self, run: &RunId) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// Nothing of the run is at work any more; it isn't put aside or over yet. Says which files the run has changed, in
    /// earlier drives too.
    async fn end(&self, run: &RunId) -> Vec<String>;
}

impl Default for FlowOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            events: Listener::default(),
            services: Services::default(),
            kinds: Kinds::builtin(),
            limits: Limits::default(),
            stop: SafeStopSignal::default(),
            policy: ResumePolicy::default(),
            companion: None,
            folder: None,
            overdue: None,
            debugger: None,
        }
    }
}

/// How a run stands once it was driven.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The run.
    pub run: RunId,
    /// Completed, failed, waiting, paused or cancelled.
    pub status: RunStatus,
    /// What it gave; empty unless it completed.
    pub outputs: Outputs,
    /// Why it failed, was paused or cancelled.
    pub error: Option<String>,
    /// How many nodes failed without stopping it.
    pub exceptions: u32,
    /// The failure that its error handler recovered from.
    pub recovered_from: Option<String>,
    /// What was checked once it had ended well.
    pub verification: Vec<Verification>,
    /// What was used in all, in earlier processes too.
    pub usage: TokenUsage,
    /// What it waits for.
    pub questions: Vec<OpenQuestion>,
    /// What stopping it came to, if it was stopped.
    pub stopped: Option<StopReport>,
    /// The node that ended last, if it isn't over.
    pub last_completed: Option<StepPath>,
}

impl RunOutcome {
    /// A run that stands so, and nothing else.
    pub fn new(run: &RunId, status: RunStatus) -> Self {
        Self {
            run: run.clone(),
            status,
            outputs: Outputs::new(),
            error: None,
            exceptions: 0,
            recovered_from: None,
            verification: Vec::new(),
            usage: TokenUsage::default(),
            questions: Vec::new(),
            stopped: None,
            last_completed: None,
        }
    }
}

/// Runs a document as a durable run. If a run of that id exists and has the same document and inputs,
/// it goes on; if it is completed, its outcome is returned. With another document it goes on only if
/// [`FlowOptions::policy`] forces it to, and keeps that document from then on.
///
/// A node that fails ends the run as failed, which is an outcome and not an error. So is a run that waits for
/// answers: everything else is done by then, and the run is let go of. Nothing is created for a document or
/// inputs that aren't valid.
pub async fn run_durable(context: &Context, start: StartFlow) -> Result<RunOutcome, FlowError> {
    start_flow(context, start).await?.drive(&mut Commands::none()).await
}

/// Goes on with a workflow, by the document that its log has.
///
/// # Errors
///
/// As `Run::resume`; [`FlowError::NotAWorkflow`] if the run is of another kind; and [`FlowError::ResumeRejected`] if its
/// surroundings changed more than [`FlowOptions::policy`] allows.
pub async fn resume_durable(context: &Context, id: &RunId, options: FlowOptions) -> Result<RunOutcome, FlowError> {
    resume_flow(context, id, None, options).await?.drive(&mut Commands::none()).await
}

/// [`resume_durable`] with another document, which the run keeps from then on. What finished stays as it is; a fork
/// does again what the change affects.
///
/// # Errors
///
/// As [`resume_durable`]: another document is a danger, which only [`ResumePolicy::Force`] goes past. And
/// [`FlowError::PendingNodesGone`] under any policy.
pub async fn resume_with_document(
    context: &Context,
    id: &RunId,
    document: (String, Format),
    options: FlowOptions,
) -> Result<RunOutcome, FlowError> {
    resume_flow(context, id, Some(document), options).await?.drive(&mut Commands::none()).await
}

/// Creates the run of a document, perhaps one of a schedule, for another process to drive. A run of that id that exists stays as it is.
///
/// # Errors
///
/// If the document or the inputs aren't valid, or the store fails: then nothing was created.
pub async fn create_durable(
    context: &Context,
    start: StartFlow,
    schedule: Option<Schedule>,
) -> Result<RunId, FlowError> {
    let (open, _) = new_run(context, &start, schedule)?;
    if !context.store.capabilities().history {
        let (store, what) = ("a store that keeps only checkpoints", "keep a workflow that no process drives yet");
        return Err(RunError::Store(StoreError::Unsupported { store, what }).into());
    }
    Ok(Run::create(context, OpenRun { durability: start.options.durability, ..open }).await?)
}

/// Opens the run of a document, or creates it.
pub(crate) async fn start_flow(context: &Context, start: StartFlow) -> Result<Driven, FlowError> {
    let (open, said) = new_run(context, &start, None)?;
    let document = Some((start.document, start.format));
    open_flow(context, open, document, Some(said), start.options).await
}

/// The run of a document, and what its caller said.
fn new_run(context: &Context, start: &StartFlow, schedule: Option<Schedule>) -> Result<(OpenRun, Given), FlowError> {
    let options = &start.options;
    let document = Document::parse(&start.document, start.format).map_err(FlowError::Document)?;
    let flow = Flow::build(&document, &options.kinds).map_err(FlowError::Document)?;
    let id = start.id.clone().unwrap_or_else(|| RunId::generate(context.clock.now(), &*context.random));
    let (inputs, system, conversation) = (start.inputs.clone(), start.system.clone(), start.conversation.clone());
    let said = Given { inputs, system, conversation, ..Given::default() };
    let given = said.clone().with_system(&document, &id, context.clock.now());
    flow.accept(given.clone(), &options.services)?;
    let fingerprint = ContextFingerprint::capture(&document, flow.needs(), &options.services, &options.limits);
    let body = FlowBody {
        document: start.document.clone(),
        format: start.format,
        inputs: given.inputs,
        system: given.system,
        conversation: given.conversation,
        folder: start.folder.clone(),
        fingerprint: fingerprint.value(),
        config: start.config.clone(),
        schedule,
    };
    let open = OpenRun {
        id: Some(id),
        name: start.name.clone(),
        kind: RunKind::Workflow,
        folder: start.folder.clone(),
        labels: start.labels.clone(),
        priority: start.priority,
        estimated_complexity: start.estimated_complexity,
        body: to_value(&body).map_err(|cause| RunError::Value { what: "the workflow".to_owned(), cause })?,
        ..OpenRun::default()
    };
    Ok((open, said))
}

/// Opens the run of a workflow that exists, perhaps to go on with another document.
pub(crate) async fn resume_flow(
    context: &Context,
    id: &RunId,
    document: Option<(String, Format)>,
    options: FlowOptions,
) -> Result<Driven, FlowError> {
    let open = OpenRun { id: Some(id.clone()), existing: true, ..OpenRun::default() };
    open_flow(context, open, document, None, options).await
}

async fn open_flow(
    context: &Context,
    mut open: OpenRun,
    document: Option<(String, Format)>,
    given: Option<Given>,
    options: FlowOptions,
) -> Result<Driven, FlowError> {
    let Some(run) = open.id.clone() else { unreachable!("the callers name it") };
    let gate = Gate {
        run,
        kinds: options.kinds.clone(),
        services: options.services.clone(),
        limits: options.limits.clone(),
        policy: options.policy,
        events: options.events.clone(),
        clock: Arc::clone(&context.clock),
        document,
        given,
    };
    let (admission, through) = gate.clone().admission();
    (open.durability, open.events, open.admission) = (options.durability, options.events.clone(), admission);
    open.overdue.clone_from(&options.overdue);
    let run = Arc::new(Run::open(context, open).await.map_err(refusal)?);
    let admitted = through.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Admitted { body, flow, replaces, audited }) = admitted else {
        // It is completed, so the gate wasn't asked.
        let body = gate.same(&run).await?;
        return Ok(Driven { run, flow: None, body, options });
    };
    if let Some(line) = audited {
        run.lines().write(line);
    }
    if replaces {
        body.replace(&run).await?;
    }
    Ok(Driven { run, flow: Some(flow), body, options })
}

/// What a gate said is what is said.
fn refusal(error: RunError) -> FlowError {
    match error {
        RunError::Refused { run, cause } => match cause.downcast::<FlowError>() {
            Ok(error) => *error,
            Err(cause) => RunError::Refused { run, cause }.into(),
        },
        error => error.into(),
    }
}

/// A run of a workflow that this process drives.
pub(crate) struct Driven {
    run: Arc<Run>,
    /// Nothing if the run is over.
    flow: Option<Flow>,
    body: FlowBody,
    options: FlowOptions,
}

impl Driven {
    pub(crate) fn id(&self) -> &RunId {
        self.run.id()
    }

    /// Drives the run until it is over, was stopped, or has nothing left to do but to wait for answers. It is
    /// let go of afterwards.
    pub(crate) async fn drive(self, commands: &mut Commands) -> Result<RunOutcome, FlowError> {
        let run = &*self.run;
        if let RunState::Completed(completed) = run.state() {
            return completed_before(run, completed);
        }
        let Some(flow) = &self.flow else {
            let cause = IllegalMove { from: run.state().status(), to: RunStatus::InProgress };
            return Err(RunError::Illegal { run: run.id().clone(), cause }.into());
        };
        let journal =
            RunJournal::new(run, flow, &self.options.services, run.clock()).begun_with(self.body.fingerprint.clone());
        let ids = RandomIds(&*run.context().random);
        let tell = |event: &Event| self.options.events.pass_on(event);
        let events = if self.options.events.listens() { EventSink::Call(&tell) } else { EventSink::None };
        let control = Control::default();
        let (steps, updates) = updates::recorded(run).await?;
        control.put_updates(steps, updates);
        loop {
            if let Some(companion) = &self.options.companion {
                companion.begin(run.id()).await.map_err(|cause| FlowError::Companion { cause })?;
            }
            let inbox = RunInbox::new(run, &self.options.events, commands.questions.clone());
            let host = Host {
                events,
                folder: self.options.folder.as_deref().or_else(|| self.body.folder.as_deref().map(Path::new)),
                services: &self.options.services,
                limits: self.options.limits.clone(),
                inbox: Some(&inbox),
                control: Some(&control),
                debugger: self.options.debugger.as_deref(),
                ..Host::new(&journal, run.clock(), &ids)
            };
            // What it needs was looked at when it was admitted.
            let given = flow.accept_inputs(self.body.given())?;
            let activity = Activity::default();
            let mut orders = RunOrders::new(run, &self.options.stop, &host, &control, commands);
            // When this ends, everything that happened is written and told.
            let written = writing(&host, async {
                let work = pin!(engine::drive(flow, given, &host, &activity));
                let rest = attend(work, &activity, &control, &mut orders, || inbox.waits()).await;
                // With the work, which is dropped here, everything is cut short that still runs.
                (rest, control.running())
            })
            .await;
            let told = orders.told();
            let files = match &self.options.companion {
                Some(companion) => companion.end(run.id()).await,
                None => Vec::new(),
            };
            let (rest, interrupted) = written.map_err(journal_error)?;
            return match rest {
                Rest::Ended(ended) => self.end(ended, files, &journal).await,
                Rest::Waits => {
                    if !run.leave(&inbox.waiting()).await? {
                        continue;
                    }
                    let last_completed = control.last_completed();
                    Ok(RunOutcome { last_completed, ..self.put_aside(journal.usage(), None, None) })
                }
                Rest::Paused => {
                    journal.save_at_rest(Trigger::Manual, "paused").await.map_err(journal_error)?;
                    let reason = told.reason.unwrap_or_else(|| "paused".to_owned());
                    if !run.leave(&inbox.waiting()).await? {
                        run.pause(&reason).await?;
                    }
                    let last_completed = control.last_completed();
                    Ok(RunOutcome { last_completed, ..self.put_aside(journal.usage(), Some(reason), None) })
                }
                Rest::Cut if told.aborted => {
                    let reason = told.reason.unwrap_or_else(|| "aborted".to_owned());
                    run.fail(Failure::new("aborted", reason.clone())).await?;
                    let (error, usage) = (Some(reason), journal.usage());
                    Ok(RunOutcome { error, usage, ..RunOutcome::new(run.id(), RunStatus::Failed) })
                }
                Rest::Stopped | Rest::Cut => {
                    // Where the run is, for people; what finished is in the log already.
                    if matches!(run.state(), RunState::InProgress(_)) {
                        journal.save(Trigger::Manual, "stopped", true).await.map_err(journal_error)?;
                    }
                    run.obey().await?;
                    let report = StopReport {
                        last_completed: control.last_completed(),
                        interrupted,
                        failed: control.failures().into_iter().collect(),
                        checkpoint_saved: true,
                    };
                    tell(&report.event(run.id()));
                    Ok(self.put_aside(journal.usage(), told.reason, Some(report)))
                }
            };
        }
    }

    /// The run is at rest: paused, waiting or cancelled.
    fn put_aside(&self, usage: TokenUsage, reason: Option<String>, stopped: Option<StopReport>) -> RunOutcome {
        let run = &self.run;
        let questions = run.open_questions().into_iter().map(OpenQuestion::from).collect();
        RunOutcome { error: reason, usage, questions, stopped, ..RunOutcome::new(run.id(), run.state().status()) }
    }

    async fn end(
        &self,
        ended: Result<Finished, FlowError>,
        files_modified: Vec<String>,
        journal: &RunJournal<'_>,
    ) -> Result<RunOutcome, FlowError> {
        let (run, usage) = (&self.run, journal.usage());
        match ended {
            Ok(Finished { outputs, exceptions, recovered_from, conversation, verification, .. }) => {
                for check in &verification {
                    run.verified(check.clone()).await?;
                }
                let kept = if conversation.is_empty() { Value::Null } else { Value::Map(conversation) };
                let ending = Ending { exceptions, recovered_from: recovered_from.clone(), kept, files_modified };
                run.complete_as(&outputs, ending).await?;
                let outcome = RunOutcome::new(run.id(), RunStatus::Completed);
                Ok(RunOutcome { outputs, usage, exceptions, recovered_from, verification, ..outcome })
            }
            Err(error @ (FlowError::Node { .. } | FlowError::TooManySteps { .. } | FlowError::TooLong { .. })) => {
                let step = if let FlowError::Node { node, .. } = &error { Some(node.to_string()) } else { None };
                let error = error.to_string();
                journal.save_at_rest(Trigger::StepCompleted, "failed").await.map_err(journal_error)?;
                run.fail(Failure { step, ..Failure::new("node", error.clone()) }).await?;
                Ok(RunOutcome { error: Some(error), usage, ..RunOutcome::new(run.id(), RunStatus::Failed) })
            }
            Err(other) => Err(journal_failure(other)),
        }
    }
}

fn journal_failure(error: FlowError) -> FlowError {
    match error {
        FlowError::Journal(error) => journal_error(error),
        other => other,
    }
}

/// What the journal had to say is what the run said.
pub(crate) fn journal_error(error: JournalError) -> FlowError {
    match error.downcast::<RunError>() {
        Ok(error) => FlowError::Run(*error),
        Err(error) => FlowError::Journal(error),
    }
}

fn completed_before(run: &Run, completed: Completed) -> Result<RunOutcome, FlowError> {
    let outputs = from_value(completed.output)
        .map_err(|cause| RunError::Value { what: "the outputs of the run".to_owned(), cause })?;
    let verification = match completed.verification {
        Value::Null => Vec::new(),
        checks => {
            from_value(checks).map_err(|cause| RunError::Value { what: "the checks of the run".to_owned(), cause })?
        }
    };
    let usage = crate::tally::Tally::read(run.tally()).usage();
    let outcome = RunOutcome { usage, verification, ..RunOutcome::new(run.id(), RunStatus::Completed) };
    Ok(RunOutcome { outputs, exceptions: completed.exceptions, recovered_from: completed.recovered_from, ..outcome })
}
