//! Running a case and judging it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_flow::{Audit, Debugger, SecurityLevel};
use piton_flow::{Control, Flow, FlowError, Given, Host, Kinds, Limits, NoJournal, Services, run as run_flow};
use piton_types::{RunId, Value};

use super::case::{Case, MockAnswer};
use super::http::MockHttp;
use super::world::{CaseClock, CaseInbox, CountedIds};
use super::{acts, compare, script, tools};

/// How long a case may take that doesn't say so itself.
const MAX_TIME: Duration = Duration::from_secs(120);

/// What became of a case.
#[derive(Debug)]
pub struct Outcome {
    /// The name of its folder.
    pub name: String,
    /// How it was judged.
    pub verdict: Verdict,
    /// How long it took.
    pub duration: Duration,
}

/// How a case was judged.
#[derive(Debug)]
pub enum Verdict {
    /// As it should be.
    Passed,
    /// Everything that differs.
    Failed(Vec<String>),
    /// It tests what this engine doesn't have.
    Unsupported(String),
}

/// Runs a case.
pub async fn run(case: Case) -> Outcome {
    let (began, name) = (Instant::now(), case.name.clone());
    let verdict = match unsupported(&case) {
        Some(reason) => Verdict::Unsupported(reason),
        None => match judge(case).await {
            Ok(differences) if differences.is_empty() => Verdict::Passed,
            Ok(differences) => Verdict::Failed(differences),
            Err(broken) => Verdict::Failed(vec![broken]),
        },
    };
    Outcome { name, verdict, duration: began.elapsed() }
}

pub(super) fn unsupported(case: &Case) -> Option<String> {
    let plugins = case.state.plugin_system.as_map().is_some_and(|plugins| !plugins.is_empty());
    plugins.then(|| "it loads plugins that were compiled for another engine".to_owned())
}

async fn judge(case: Case) -> Result<Vec<String>, String> {
    if let Some(acts) = &case.acts {
        return acts::play(&case, acts).await;
    }
    let mock = start_mock(&case).await?;
    let base = mock.as_ref().map(MockHttp::url);
    let (ended, mut differences) = match &case.debug {
        Some(script) => script::play(&case, script, base.as_deref()).await?,
        None => (execute(&case, base.as_deref(), None).await?, Vec::new()),
    };
    if differences.is_empty() {
        differences = self::differences(&case, &ended);
    }
    if !differences.is_empty() {
        let unmatched = mock.iter().flat_map(MockHttp::unmatched);
        differences.extend(unmatched.map(|request| format!("no mock_server entry fitted {request}")));
    }
    Ok(differences)
}

/// The case's HTTP server, if it has one.
pub(super) async fn start_mock(case: &Case) -> Result<Option<MockHttp>, String> {
    start(case.state.mock_server.clone()).await
}

/// The same for a run that is killed: a request that only reads is made again if no listener was told what it gave, so the
/// last answer to it is given as often as it is asked for.
pub(super) async fn start_patient_mock(case: &Case) -> Result<Option<MockHttp>, String> {
    let mut answers = case.state.mock_server.clone();
    for place in 0..answers.len() {
        let is_last = !answers[place + 1..].iter().any(|later| later.fits_like(&answers[place]));
        if is_last && answers[place].method.eq_ignore_ascii_case("GET") {
            answers[place].expect = None;
        }
    }
    start(answers).await
}

pub(super) async fn start(answers: Vec<MockAnswer>) -> Result<Option<MockHttp>, String> {
    if answers.is_empty() { Ok(None) } else { MockHttp::start(answers).await.map(Some) }
}

/// What differs from what should have come out.
pub(super) fn differences(case: &Case, ended: &Ended) -> Vec<String> {
    let expected = &case.expected;
    let Ended { status, outputs, error } = ended;
    let mut differences = Vec::new();
    if *status != expected.status {
        let because = error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        differences.push(format!("status: expected {}, got {status}{because}", expected.status));
    }
    if let Some(wanted) = &expected.error_contains {
        match error {
            Some(error) if error.contains(wanted) => {}
            // If it ended otherwise, that is the news.
            _ if *status != expected.status => {}
            Some(error) => differences.push(format!("error: expected one with {wanted:?}, got {error:?}")),
            None => differences.push(format!("error: expected one with {wanted:?}, got none")),
        }
    }
    if *status == expected.status && *status != Ended::FAILED {
        differences.extend(compare::outputs(&expected.outputs, outputs, expected.partial_match));
    }
    differences
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub(super) status: &'static str,
    pub(super) outputs: BTreeMap<String, Value>,
    pub(super) error: Option<String>,
}

impl Ended {
    pub(super) const COMPLETED: &'static str = "completed";
    pub(super) const RECOVERED: &'static str = "failed_with_recovery";
    pub(super) const FAILED: &'static str = "failed";

    pub(super) fn failed(error: &impl ToString) -> Self {
        Self { status: Self::FAILED, outputs: BTreeMap::new(), error: Some(error.to_string()) }
    }
}

/// What a run of a case needs.
pub(super) struct Setup {
    pub(super) flow: Flow,
    pub(super) given: Given,
    pub(super) services: Services,
    pub(super) limits: Limits,
}

/// Checks the document and prepares its world. The outer error is one of the case itself.
pub(super) fn prepare(
    case: &Case,
    base: Option<&str>,
    level: SecurityLevel,
    audit: Option<Arc<dyn Audit>>,
) -> Result<Result<Setup, FlowError>, String> {
    let state = &case.state;
    let document = match &case.document {
        Ok(document) => document,
        Err(problems) => return Ok(Err(FlowError::Document(problems.clone()))),
    };
    let flow = match Flow::build(document, &Kinds::builtin()) {
        Ok(flow) => flow,
        Err(problems) => return Ok(Err(FlowError::Document(problems))),
    };
    let mut system = state.system_variables.clone();
    if let Some(base) = base {
        system.entry("base_url".to_owned()).or_insert_with(|| Value::from(base));
    }
    let given = Given {
        inputs: case.inputs.clone(),
        system,
        environment: state.environment_variables.clone(),
        conversation: state.conversation_variables.clone(),
        lenient: true,
    };
    let services = tools::services(case, &document.mcp_servers, base, level, audit)?;
    let config = &state.config;
    let limits = Limits {
        max_steps: config.max_steps,
        max_time: Some(config.max_execution_time_secs.map_or(MAX_TIME, Duration::from_secs)),
        strict_templates: config.strict_template,
        concurrency: config.max_concurrency.filter(|most| *most > 0).unwrap_or(Limits::default().concurrency),
        ..Limits::default()
    };
    Ok(Ok(Setup { flow, given, services, limits }))
}

/// Runs the document of a case. The outer error is one of the case itself.
pub(super) async fn execute(case: &Case, base: Option<&str>, debugger: Option<&dyn Debugger>) -> Result<Ended, String> {
    let state = &case.state;
    let setup = match prepare(case, base, SecurityLevel::Standard, None)? {
        Ok(setup) => setup,
        Err(error) => return Ok(Ended::failed(&error)),
    };
    let run: RunId = "case".parse().map_err(|error| format!("{error}"))?;
    let journal = NoJournal::new(run);
    let clock = CaseClock::new(state.fake_time.as_ref().map(|time| time.fixed_timestamp));
    let ids = CountedIds::new(state.fake_id.as_ref().map_or("id", |id| id.prefix.as_str()));
    let (inbox, control) = (CaseInbox(state.answers.clone()), Control::default());
    let host = Host {
        services: &setup.services,
        limits: setup.limits,
        folder: Some(&case.folder),
        inbox: Some(&inbox),
        control: Some(&control),
        debugger,
        ..Host::new(&journal, &clock, &ids)
    };
    Ok(run_flow(&setup.flow, setup.given, &host).await.map_or_else(|error| Ended::failed(&error), Ended::from))
}
