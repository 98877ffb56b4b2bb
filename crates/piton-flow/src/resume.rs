//! Whether a run may go on where it is now (V5): its fingerprint of then is compared with that of now, before anything
//! is claimed or written. With a document that isn't its own it goes on only if it is forced to; what finished stays
//! as it is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use piton_runtime::{Admission, Context, History, Listener, Run, RunError};
use piton_types::{Clock, Event, RunId, StepPath};

use crate::body::FlowBody;
use crate::document::Document;
use crate::engine::{HANDLER, Limits, VERIFICATION};
use crate::error::FlowError;
use crate::fingerprint::{
    ChangeSeverity, ContextFingerprint, Impact, ResumeDiagnostic, diff_fingerprints, schema_hash,
};
use crate::flow::{Flow, Given};
use crate::format::Format;
use crate::kind::Kinds;
use crate::need::Services;
use crate::outside::{AuditKind, Outside};
use crate::position::Position;

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
    /// The fingerprint of now.
    pub now: ContextFingerprint,
}

/// What a run would go on with.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The kinds of nodes that there are.
    pub kinds: &'a Kinds,
    /// What nodes may use.
    pub services: &'a Services,
    /// How far the run may go.
    pub limits: &'a Limits,
}

impl Setting<'_> {
    /// The fingerprint of a document here, if it can be run.
    fn capture(&self, document: &Document) -> Result<(Flow, ContextFingerprint), FlowError> {
        let flow = Flow::build(document, self.kinds).map_err(FlowError::Document)?;
        let found = ContextFingerprint::capture(document, flow.needs(), self.services, self.limits);
        Ok((flow, found))
    }
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
    setting: Setting<'_>,
) -> Result<ResumeExamination, FlowError> {
    examine_history(run, &History::of(context, run).await?, document, setting).await
}

/// [`examine_resume`], for what the log had at some time.
///
/// # Errors
///
/// [`FlowError::NotAWorkflow`], and [`FlowError::Document`].
pub async fn examine_history(
    run: &RunId,
    history: &History,
    document: Option<&Document>,
    setting: Setting<'_>,
) -> Result<ResumeExamination, FlowError> {
    let body = FlowBody::of_history(run, history).await?;
    let own = Document::parse(&body.document, body.format).map_err(FlowError::Document)?;
    let examined = examine(history, &body, &own, document, setting).await?;
    Ok(examined.said)
}

struct Examined {
    said: ResumeExamination,
    /// The flow of the document that the run would go on with.
    flow: Flow,
    /// That document isn't the run's own.
    replaces: bool,
}

async fn examine(
    history: &History,
    body: &FlowBody,
    own: &Document,
    other: Option<&Document>,
    setting: Setting<'_>,
) -> Result<Examined, FlowError> {
    let before = body.begun_with();
    let (flow, now) = setting.capture(other.unwrap_or(own))?;
    let mut diagnostic = diff_fingerprints(before.as_ref(), &now);
    let Some(other) = other else {
        let said = ResumeExamination { diagnostic, impact: None, now };
        return Ok(Examined { said, flow, replaces: false });
    };
    // Its own document is known, even if the run was begun before there were fingerprints. It may be one that can't be
    // run here any more: then all that didn't end is to come.
    let built = setting.capture(own);
    let known = match (&before, &built) {
        (Some(before), _) => before.clone(),
        (None, Ok((_, known))) => known.clone(),
        (None, Err(_)) => ContextFingerprint::default(),
    };
    let replaces = known.schema_hash != now.schema_hash;
    if before.is_none() && replaces {
        diagnostic.add("schema", ChangeSeverity::Danger, "the document is another one".to_owned());
    }
    let nodes = own.nodes.iter().chain(&other.nodes).map(|node| node.id.as_str());
    let nodes: BTreeSet<&str> = nodes.chain(known.nodes.keys().map(String::as_str)).collect();
    let nodes = nodes.into_iter().filter_map(|node| node.parse().ok()).collect();
    let finished = history.finished_among(nodes).await.map_err(RunError::Store)?;
    let outermost: BTreeSet<&str> = finished.iter().map(|step| step.path.as_str()).collect();
    let mut pending = match &built {
        Ok((own, _)) => Position::pending(&own.graph, finished.iter().map(|step| (&step.path, &step.output))),
        Err(_) => known.nodes.keys().filter(|node| !outermost.contains(node.as_str())).cloned().collect(),
    };
    pending.retain(|node| !now.nodes.contains_key(node));
    // Inside containers, only what began has a place.
    let questions = history.questions.iter().map(|question| &question.path);
    let begun = questions.chain(history.uncertain.iter().map(|effect| &effect.intent.path));
    pending.extend(begun.filter(|step| !has_node(other, step)).map(ToString::to_string));
    let impact = Impact::of(&known, &now, other, outermost, pending);
    Ok(Examined { said: ResumeExamination { diagnostic, impact: Some(impact), now }, flow, replaces })
}

/// The nodes of a flow that neither finished nor were passed over.
async fn still_pending(flow: &Flow, history: &History) -> Result<BTreeSet<String>, FlowError> {
    let nodes = flow.graph.nodes.iter().map(|node| node.id.step().clone()).collect();
    let finished = history.finished_among(nodes).await.map_err(RunError::Store)?;
    Ok(Position::pending(&flow.graph, finished.iter().map(|step| (&step.path, &step.output))))
}

/// Whether a document has the node of a step: `node`, `loop/3/node`, `agent/turn-2`.
fn has_node(document: &Document, step: &StepPath) -> bool {
    let mut graph = document;
    let mut words = step.as_str().split('/').map(|word| word.split('#').next().unwrap_or_default());
    while let Some(word) = words.next() {
        if word == HANDLER
            && let Some(handler) = &graph.error_handler
        {
            graph = &handler.graph;
            continue;
        }
        if word == VERIFICATION
            && let Some(verify) = &graph.verify
        {
            graph = verify;
            continue;
        }
        let Some(node) = graph.nodes.iter().find(|node| node.id.as_str() == word) else { return false };
        let Some(inside) = &node.inside else { return true };
        graph = inside;
        // Which item or round it is.
        words.next();
    }
    true
}

/// What a run goes on with, as it was admitted.
pub(crate) struct Admitted {
    pub(crate) body: FlowBody,
    pub(crate) flow: Flow,
    /// The document takes the place of the one that the log has.
    pub(crate) replaces: bool,
    /// What was written down of its going on.
    pub(crate) audited: Option<String>,
}

/// Lets a run go on here, or doesn't.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) run: RunId,
    pub(crate) kinds: Kinds,
    pub(crate) services: Services,
    pub(crate) limits: Limits,
    pub(crate) policy: ResumePolicy,
    pub(crate) events: Listener,
    pub(crate) clock: Arc<dyn Clock>,
    /// The document to go on with, if it isn't said to be the run's own.
    pub(crate) document: Option<(String, Format)>,
    /// What it must have been given, if the caller says so.
    pub(crate) given: Option<Given>,
}

/// What a gate has let through.
pub(crate) type Through = Arc<Mutex<Option<Admitted>>>;

impl Gate {
    /// This gate for the code that opens the run, and the place where it puts what it has let through.
    pub(crate) fn admission(self) -> (Admission, Through) {
        let through = Through::default();
        let (gate, kept) = (Arc::new(self), Arc::clone(&through));
        let admission = Admission::by(move |history| {
            let (gate, kept) = (Arc::clone(&gate), Arc::clone(&kept));
            Box::pin(async move {
                let admitted = gate.pass(history).await?;
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(admitted);
                Ok(())
            })
        });
        (admission, through)
    }

    async fn pass(&self, history: &History) -> Result<Admitted, FlowError> {
        let mut body = FlowBody::of_history(&self.run, history).await?;
        self.given_as(&body)?;
        let parse = |text: &str, format| Document::parse(text, format).map_err(FlowError::Document);
        let own = parse(&body.document, body.format)?;
        let differs = self.document.as_ref().filter(|(text, format)| *text != body.document || *format != body.format);
        let other = differs.map(|(text, format)| parse(text, *format)).transpose()?;
        let setting = Setting { kinds: &self.kinds, services: &self.services, limits: &self.limits };
        let Examined { said, flow, replaces } = examine(history, &body, &own, other.as_ref(), setting).await?;
        flow.accept_inputs(body.given())?;
        let lost = said.impact.as_ref().map(|impact| impact.lost.clone()).unwrap_or_default();
        if replaces && !lost.is_empty() {
            return Err(FlowError::PendingNodesGone { run: self.run.clone(), nodes: lost });
        }
        // What it was forced past shows when a node that needs it runs.
        if self.policy != ResumePolicy::Force {
            let unmet = flow.unmet_of(&still_pending(&flow, history).await?, &self.services);
            if !unmet.is_empty() {
                return Err(FlowError::Needs(unmet));
            }
        }
        let audited = self.judge(history, &said.diagnostic)?;
        if let Some((text, format)) = differs.filter(|_| replaces) {
            (body.document, body.format, body.fingerprint) = (text.clone(), *format, said.now.value());
        }
        Ok(Admitted { body, flow, replaces, audited })
    }

    /// That the run was given what the caller says, where the caller says it.
    fn given_as(&self, body: &FlowBody) -> Result<(), FlowError> {
        let what = match &self.given {
            Some(given) if given.inputs != body.inputs => "inputs",
            Some(given) if given.system.get("query").is_some_and(|said| Some(said) != body.system.get("query")) => {
                "a question"
            }
            _ => return Ok(()),
        };
        Err(FlowError::Differs { run: self.run.clone(), what })
    }

    /// That a completed run is the one that is meant.
    pub(crate) async fn same(&self, run: &Run) -> Result<FlowBody, FlowError> {
        let body = FlowBody::of_run(run).await?;
        self.given_as(&body)?;
        let differs = |what| Err(FlowError::Differs { run: self.run.clone(), what });
        match &self.document {
            Some((text, format)) if *text != body.document || *format != body.format => {
                let document = Document::parse(text, *format).map_err(FlowError::Document)?;
                match body.begun_with() {
                    Some(before) if before.schema_hash == schema_hash(&document) => Ok(body),
                    _ => differs("a document"),
                }
            }
            _ => Ok(body),
        }
    }

    /// Whether it may go on; and what was written down of it, for the run's own log.
    fn judge(&self, history: &History, diagnostic: &ResumeDiagnostic) -> Result<Option<String>, FlowError> {
        let forced = self.policy == ResumePolicy::Force;
        if diagnostic.has_danger() && !forced {
            return Err(FlowError::ResumeRejected {
                workflow_id: self.run.clone(),
                diagnostic: diagnostic.report(),
                changes: diagnostic.changes.clone(),
            });
        }
        let mut audited = None;
        if let (Some(outside), Some(_)) = (self.services.get::<Outside>(), &history.claim) {
            let at = self.clock.now();
            let last = history.last_finished.as_ref();
            let note = |kind, detail: &str| outside.note(at, &self.run, last, kind, detail);
            let noted = match diagnostic.report().replace('\n', "; ") {
                changes if forced && !changes.is_empty() => note(AuditKind::ForceResumeWithChanges, &changes),
                changes => note(AuditKind::Resumed, &changes),
            };
            audited = Some(noted.map_err(FlowError::Journal)?);
        }
        if diagnostic.has_warnings() {
            self.events.tell(|| Event::ResumeWarning { run: self.run.clone(), report: diagnostic.report() });
        }
        Ok(audited)
    }
}
