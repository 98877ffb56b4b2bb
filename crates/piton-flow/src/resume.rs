//! Whether a run may go on where it is now (V5): its fingerprint of then is compared with that of now, before anything
//! is claimed or written.

use piton_runtime::{Context, History, Listener, Run};
use piton_types::{Event, RunId, RunStatus, Value, from_value};

use crate::document::Document;
use crate::error::FlowError;
use crate::fingerprint::{ContextFingerprint, Impact, ResumeDiagnostic, diff_fingerprints};
use crate::flow::Flow;
use crate::format::Format;
use crate::kind::Kinds;
use crate::need::Services;
use crate::outside::{AuditKind, Outside};

/// What to do about a run whose surroundings changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResumePolicy {
    /// A danger is refused with the whole report; of what is less the run says so and goes on.
    #[default]
    Normal,
    /// It goes on, and every change is written down.
    Force,
}

/// What is to be said before a run goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeExamination {
    /// What changed since the run was begun.
    pub diagnostic: ResumeDiagnostic,
    /// What another document means for what is done, if one is asked about.
    pub impact: Option<Impact>,
}

/// The name of the field of entry 0 that has the fingerprint.
pub(crate) const FINGERPRINT: &str = "fingerprint";

/// The fingerprint of a document that was checked, as entry 0 has it.
pub(crate) fn fingerprint(
    text: &str,
    format: Format,
    kinds: &Kinds,
    services: &Services,
) -> Result<ContextFingerprint, FlowError> {
    let document = Document::parse(text, format).map_err(FlowError::Document)?;
    let flow = Flow::build(&document, kinds).map_err(FlowError::Document)?;
    Ok(ContextFingerprint::capture(&document, flow.needs(), services))
}

/// The fingerprint that a run was begun with, and that of now.
fn both(
    run: &RunId,
    input: &Value,
    kinds: &Kinds,
    services: &Services,
) -> Result<(Option<ContextFingerprint>, ContextFingerprint), FlowError> {
    let not_a_workflow = || FlowError::NotAWorkflow { run: run.clone() };
    let text = input.field("document").and_then(Value::as_str).ok_or_else(not_a_workflow)?;
    let format: Format =
        input.field("format").and_then(|found| from_value(found.clone()).ok()).ok_or_else(not_a_workflow)?;
    let before = ContextFingerprint::read(input.field(FINGERPRINT).cloned().unwrap_or_default());
    Ok((before, fingerprint(text, format, kinds, services)?))
}

/// Says what changed since a run was begun; and, of another document, what it would mean. Takes nothing and changes
/// nothing.
///
/// # Errors
///
/// [`FlowError::NotAWorkflow`], and what the store says.
pub async fn examine_resume(
    context: &Context,
    run: &RunId,
    document: Option<&Document>,
    kinds: &Kinds,
    services: &Services,
) -> Result<ResumeExamination, FlowError> {
    let history = History::of(context, run).await?;
    let (before, now) = both(run, &history.input, kinds, services)?;
    let Some(document) = document else {
        return Ok(ResumeExamination { diagnostic: diff_fingerprints(before.as_ref(), &now), impact: None });
    };
    let flow = Flow::build(document, kinds).map_err(FlowError::Document)?;
    let then = ContextFingerprint::capture(document, flow.needs(), services);
    // The document of the run itself is known, even if it was begun before there were fingerprints.
    let finished: Vec<_> = history
        .steps
        .iter()
        .filter(|step| step.is_finished() && !step.path.as_str().contains('/'))
        .map(|step| step.path.as_str())
        .collect();
    let impact = Impact::of(before.as_ref().unwrap_or(&now), &then, document, finished);
    Ok(ResumeExamination { diagnostic: diff_fingerprints(before.as_ref(), &then), impact: Some(impact) })
}

/// That a run may go on here. One that doesn't exist, or is completed, may.
pub(crate) async fn admit(
    context: &Context,
    run: &RunId,
    kinds: &Kinds,
    services: &Services,
    policy: ResumePolicy,
    events: &Listener,
) -> Result<(), FlowError> {
    let Some(input) = Run::input_of(context, run).await? else { return Ok(()) };
    let status = context.store.summary(run).await.map_err(piton_runtime::RunError::from)?.map(|found| found.status);
    if status == Some(RunStatus::Completed) {
        return Ok(());
    }
    let (before, now) = both(run, &input, kinds, services)?;
    let diagnostic = diff_fingerprints(before.as_ref(), &now);
    if diagnostic.has_danger() && policy == ResumePolicy::Normal {
        return Err(FlowError::ResumeRejected { run: run.clone(), diagnostic });
    }
    if policy == ResumePolicy::Force && !diagnostic.changes.is_empty() {
        let audit = services.get::<Outside>().map(|outside| {
            let at = context.clock.now();
            let detail = diagnostic.report().replace('\n', "; ");
            outside.note(at, run, AuditKind::ForceResumeWithChanges, &detail)
        });
        audit.transpose().map_err(FlowError::Journal)?;
    }
    if let Some(outside) = services.get::<Outside>() {
        outside.note(context.clock.now(), run, AuditKind::Resumed, "").map_err(FlowError::Journal)?;
    }
    if diagnostic.has_danger() || diagnostic.has_warnings() {
        events.tell(&Event::ResumeWarning { run: run.clone(), report: diagnostic.report() });
    }
    Ok(())
}
