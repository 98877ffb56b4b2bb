//! Running a case and judging it.

use std::time::{Duration, Instant};

use piton::{Control, Finished, Flow, FlowError, Given, Host, Kinds, Limits, NoJournal, run as run_flow};
use piton_types::{RunId, Value};

use super::case::Case;
use super::http::MockHttp;
use super::world::{CaseClock, CaseInbox, CountedIds};
use super::{compare, tools};

/// How long a case may take that doesn't say so itself.
const MAX_TIME: Duration = Duration::from_secs(120);

/// What became of a case.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    pub(crate) duration: Duration,
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Passed,
    /// Everything that differs.
    Failed(Vec<String>),
    /// It tests what this engine doesn't have.
    Unsupported(String),
}

/// Runs a case.
pub(crate) async fn run(case: Case) -> Outcome {
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

fn unsupported(case: &Case) -> Option<String> {
    if case.debug.is_some() {
        return Some("it has a script for a debugger, which this engine doesn't have".to_owned());
    }
    let plugins = case.state.plugin_system.as_map().is_some_and(|plugins| !plugins.is_empty());
    plugins.then(|| "it loads plugins that were compiled for another engine".to_owned())
}

async fn judge(case: Case) -> Result<Vec<String>, String> {
    let mock = if case.state.mock_server.is_empty() {
        None
    } else {
        Some(MockHttp::start(case.state.mock_server.clone()).await?)
    };
    let base = mock.as_ref().map(MockHttp::url);
    let (status, outputs, error) = match execute(&case, base.as_deref()).await? {
        Ok(Finished { outputs, recovered_from: Some(error), .. }) => ("failed_with_recovery", outputs, Some(error)),
        Ok(finished) => ("completed", finished.outputs, None),
        Err(error) => ("failed", std::collections::BTreeMap::new(), Some(error.to_string())),
    };
    let expected = &case.expected;
    let mut differences = Vec::new();
    if status != expected.status {
        let because = error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        differences.push(format!("status: expected {}, got {status}{because}", expected.status));
    }
    if let Some(wanted) = &expected.error_contains {
        match &error {
            Some(error) if error.contains(wanted) => {}
            Some(error) if status == expected.status => {
                differences.push(format!("error: expected one with {wanted:?}, got {error:?}"));
            }
            _ => {}
        }
    }
    if status == expected.status && status != "failed" {
        differences.extend(compare::outputs(&expected.outputs, &outputs, expected.partial_match));
    }
    if !differences.is_empty() {
        let unmatched = mock.iter().flat_map(MockHttp::unmatched);
        differences.extend(unmatched.map(|request| format!("no mock_server entry fitted {request}")));
    }
    Ok(differences)
}

/// Runs the document of a case. The outer error is one of the case itself.
async fn execute(case: &Case, base: Option<&str>) -> Result<Result<Finished, FlowError>, String> {
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
    let services = tools::services(state, &document.mcp_servers, base)?;
    let run: RunId = "case".parse().map_err(|error| format!("{error}"))?;
    let journal = NoJournal::new(run);
    let clock = CaseClock::new(state.fake_time.as_ref().map(|time| time.fixed_timestamp));
    let ids = CountedIds::new(state.fake_id.as_ref().map_or("id", |id| id.prefix.as_str()));
    let (inbox, control) = (CaseInbox(state.answers.clone()), Control::default());
    let config = &state.config;
    let limits = Limits {
        max_steps: config.max_steps,
        max_time: Some(config.max_execution_time_secs.map_or(MAX_TIME, Duration::from_secs)),
        strict_templates: config.strict_template,
        concurrency: config.max_concurrency.filter(|most| *most > 0).unwrap_or(Limits::default().concurrency),
        ..Limits::default()
    };
    let host = Host {
        services: &services,
        limits,
        folder: Some(&case.folder),
        inbox: Some(&inbox),
        control: Some(&control),
        ..Host::new(&journal, &clock, &ids)
    };
    Ok(run_flow(&flow, given, &host).await)
}
