//! Workflows as durable runs. Entry 0 of the run's log has the document and the inputs, so whoever goes
//! on with the run needs nothing but its id; what nodes give is the journal's.

use std::path::Path;

use piton_runtime::{Context, Failure, Listener, OpenRun, Run, RunError};
use piton_types::{Durability, Random, RunId, RunKind, RunState, RunStatus, TokenUsage, Value, from_value, to_value};
use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::durable::RunJournal;
use crate::engine::{self, Host, Ids, Inputs, Outputs};
use crate::error::FlowError;
use crate::events::EventSink;
use crate::flow::Flow;
use crate::format::Format;
use crate::kind::Kinds;
use crate::need::Services;
use crate::resume::{self, ResumePolicy};

/// A workflow to be started, or gone on with.
#[derive(Debug, Clone)]
pub struct StartFlow {
    /// The text of the document.
    pub document: String,
    /// How it is written.
    pub format: Format,
    /// What the workflow is given.
    pub inputs: Inputs,
    /// The run's id; without one, a generated one.
    pub id: Option<RunId>,
    /// What the run is called.
    pub name: String,
    /// The working directory that it belongs to, and that its programs run in.
    pub folder: Option<String>,
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// Who is told what happens.
    pub events: Listener,
    /// What nodes may use. It isn't recorded: whoever goes on with the run says it again.
    pub services: Services,
}

/// How a run stands once it was driven.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The run.
    pub run: RunId,
    /// Completed or failed.
    pub status: RunStatus,
    /// What it gave; empty unless it completed.
    pub outputs: Outputs,
    /// Why it failed.
    pub error: Option<String>,
    /// What was used in all, in earlier processes too.
    pub usage: TokenUsage,
}

/// What entry 0 of a workflow's run has.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct FlowBody {
    document: String,
    format: Format,
    inputs: Inputs,
    folder: Option<String>,
    /// What it was begun with.
    #[serde(default)]
    fingerprint: Value,
}

impl FlowBody {
    fn read(run: &RunId, input: &Value) -> Result<Self, FlowError> {
        from_value(input.clone()).map_err(|_| FlowError::NotAWorkflow { run: run.clone() })
    }

    /// That the run which exists is the one that is meant. Its folder may be another: it keeps its own.
    fn check_same(&self, run: &RunId, found: &Self) -> Result<(), FlowError> {
        let same = [
            (found.document == self.document && found.format == self.format, "a document"),
            (found.inputs == self.inputs, "inputs"),
        ];
        match same.into_iter().find(|(same, _)| !same) {
            Some((_, what)) => Err(FlowError::Differs { run: run.clone(), what }),
            None => Ok(()),
        }
    }
}

/// Runs a document as a durable run. If a run of that id exists and has the same document and inputs,
/// it goes on; if it is completed, its outcome is returned.
///
/// A node that fails ends the run as failed, which is an outcome and not an error. Nothing is created
/// for a document or inputs that aren't valid.
pub async fn run_durable(context: &Context, start: StartFlow) -> Result<RunOutcome, FlowError> {
    let flow = check(&start.document, start.format, &start.inputs, &start.services)?;
    let services = start.services;
    let events = start.events.clone();
    let fingerprint = resume::fingerprint(&start.document, start.format, &Kinds::builtin(), &services)?.value();
    let body = FlowBody {
        document: start.document,
        format: start.format,
        inputs: start.inputs,
        folder: start.folder.clone(),
        fingerprint,
    };
    let open = OpenRun {
        id: start.id,
        name: start.name,
        kind: RunKind::Workflow,
        folder: start.folder,
        body: to_value(&body).map_err(|cause| RunError::Value { what: "the workflow".to_owned(), cause })?,
        durability: start.durability,
        events: events.clone(),
        ..OpenRun::default()
    };
    // Before it is claimed, so that what is refused stays as it is; and after, in case somebody else
    // created it between the two.
    if let Some(id) = &open.id
        && let Some(input) = Run::input_of(context, id).await?
    {
        body.check_same(id, &FlowBody::read(id, &input)?)?;
        resume::admit(context, id, &Kinds::builtin(), &services, ResumePolicy::Normal, &events).await?;
    }
    let run = Run::open(context, open).await?;
    let found = FlowBody::read(run.id(), run.input())?;
    body.check_same(run.id(), &found)?;
    drive(context, &run, &flow, found, &events, &services).await
}

/// Goes on with a workflow, by the document that its log has.
///
/// # Errors
///
/// As `Run::resume`, and [`FlowError::NotAWorkflow`] if the run is of another kind.
pub async fn resume_durable(
    context: &Context,
    id: &RunId,
    durability: Durability,
    events: Listener,
    services: &Services,
) -> Result<RunOutcome, FlowError> {
    resume_durable_as(context, id, durability, events, services, ResumePolicy::Normal).await
}

/// [`resume_durable`], by a policy for what changed since the run was begun.
///
/// # Errors
///
/// As [`resume_durable`], and [`FlowError::ResumeRejected`].
pub async fn resume_durable_as(
    context: &Context,
    id: &RunId,
    durability: Durability,
    events: Listener,
    services: &Services,
    policy: ResumePolicy,
) -> Result<RunOutcome, FlowError> {
    if let Some(input) = Run::input_of(context, id).await? {
        FlowBody::read(id, &input)?;
        resume::admit(context, id, &Kinds::builtin(), services, policy, &events).await?;
    }
    let run = Run::resume(context, id, durability, events.clone()).await?;
    let body = FlowBody::read(id, run.input())?;
    let flow = check(&body.document, body.format, &body.inputs, services)?;
    drive(context, &run, &flow, body, &events, services).await
}

fn check(document: &str, format: Format, inputs: &Inputs, services: &Services) -> Result<Flow, FlowError> {
    let document = Document::parse(document, format).map_err(FlowError::Document)?;
    let flow = Flow::build(&document, &Kinds::builtin()).map_err(FlowError::Document)?;
    flow.accept(inputs.clone().into(), services)?;
    Ok(flow)
}

/// Ids of the version 4 of RFC 9562, from the context's randomness.
struct RandomIds<'a>(&'a dyn Random);

impl Ids for RandomIds<'_> {
    fn next(&self) -> String {
        let mut bytes = [0; 16];
        self.0.fill(&mut bytes);
        engine::uuid(bytes)
    }
}

async fn drive(
    context: &Context,
    run: &Run,
    flow: &Flow,
    body: FlowBody,
    events: &Listener,
    services: &Services,
) -> Result<RunOutcome, FlowError> {
    if let RunState::Completed(completed) = run.state() {
        let outputs = from_value(completed.output)
            .map_err(|cause| RunError::Value { what: "the outputs of the run".to_owned(), cause })?;
        return Ok(RunOutcome {
            run: run.id().clone(),
            status: RunStatus::Completed,
            outputs,
            error: None,
            usage: crate::tally::Tally::read(run.tally()).usage(),
        });
    }
    let (journal, ids) = (
        RunJournal::new(run, flow, services, &*context.clock).begun_with(body.fingerprint.clone()),
        RandomIds(&*context.random),
    );
    let tell = |event: &piton_types::Event| events.tell(event);
    let host = Host {
        events: EventSink::Call(&tell),
        folder: body.folder.as_deref().map(Path::new),
        services,
        ..Host::new(&journal, &*context.clock, &ids)
    };
    let id = run.id().clone();
    let given = flow.accept(body.inputs.into(), host.services)?;
    match engine::drive(flow, given, &host).await {
        Ok(engine::Finished { outputs, .. }) => {
            run.complete(&outputs).await?;
            let usage = journal.usage();
            Ok(RunOutcome { run: id, status: RunStatus::Completed, outputs, error: None, usage })
        }
        Err(error @ (FlowError::Node { .. } | FlowError::TooManySteps { .. } | FlowError::TooLong { .. })) => {
            let step = if let FlowError::Node { node, .. } = &error { Some(node.to_string()) } else { None };
            let error = error.to_string();
            run.fail(Failure { step, ..Failure::new("node", error.clone()) }).await?;
            let (status, usage) = (RunStatus::Failed, journal.usage());
            Ok(RunOutcome { run: id, status, outputs: Outputs::new(), error: Some(error), usage })
        }
        // What the journal had to say is what the run said.
        Err(FlowError::Journal(error)) => match error.downcast::<RunError>() {
            Ok(error) => Err(FlowError::Run(*error)),
            Err(error) => Err(FlowError::Journal(error)),
        },
        Err(other) => Err(other),
    }
}
