//! The runs of a folder, or of all, newest first. Reads the index, and of the runs that it lists the newest entries;
//! whole logs only for the question or the error that was asked for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use piton_flow::OpenQuestion;
use piton_log::{RunLog, SealedEntry};
use piton_runtime::recovery::stalled;
use piton_runtime::{Context, History, LeaseOptions, LeaseWatch};
pub use piton_store::RunQuery;
use piton_store::{Span, Store};
use piton_types::{EntryKind, RunId, RunKind, RunState, RunStatus, RunSummary, Seq, TokenUsage};
use serde_json::Value as Json;

use crate::app::App;
use crate::failure::{Failure, FailureKind};
use crate::files::{self, drift_watch::stands_still};
use crate::views::run::{ListedRun, QuestionView, lasted};
use crate::views::{millis, value_json};

/// Of a run with fewer entries all are read, to find out how long it worked.
const FEW: u32 = 256;
/// How many entries are read of any other.
const RECENT: usize = 16;

/// Which runs are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All of them, or those in the states that the query names.
    All,
    /// Those that wait for an answer, with their questions.
    Waiting,
    /// Those that failed, with their errors.
    Failed,
    /// Those that are in progress though no process drives them. Leases of other hosts are watched for a while.
    Stalled,
}

/// What is listed.
#[derive(Debug, Clone)]
pub struct ListRuns {
    /// Which runs.
    pub which: Which,
    /// Of all folders that have a store, not only of this one.
    pub everywhere: bool,
    /// What the store is asked for; the states are those of `which`, unless that is all. The limit is that of each store.
    pub query: RunQuery,
}

/// Lists runs.
pub async fn list(app: &App, wanted: ListRuns) -> Result<Vec<ListedRun>, Failure> {
    let mut listed = Vec::new();
    if wanted.everywhere {
        for place in app.surroundings.find_all()? {
            let Some(store) = app.open_if_unlocked(&place).await? else { continue };
            listed.extend(of_store(app, &store, &wanted).await?);
            store.close().await?;
        }
    } else {
        let store = app.look().await?;
        listed = of_store(app, &store, &wanted).await?;
        store.close().await?;
    }
    Ok(listed)
}

async fn of_store(app: &App, store: &Arc<dyn Store>, wanted: &ListRuns) -> Result<Vec<ListedRun>, Failure> {
    let status = match wanted.which {
        Which::Waiting => vec![RunStatus::Waiting],
        Which::Failed => vec![RunStatus::Failed],
        Which::Stalled => vec![RunStatus::InProgress],
        Which::All => wanted.query.status.clone(),
    };
    let dead = match wanted.which {
        Which::Waiting | Which::Failed => Vec::new(),
        Which::All | Which::Stalled => dead(app, store, wanted.which == Which::Stalled).await?,
    };
    let query = RunQuery { status, ..wanted.query.clone() };
    let ids: HashSet<RunId> = dead.iter().map(|run| run.id.clone()).collect();
    let found = match wanted.which {
        Which::Stalled => {
            let most = query.limit.unwrap_or(usize::MAX);
            dead.into_iter().filter(|run| query.admits(run)).take(most).collect()
        }
        _ => store.list(query).await?,
    };
    let workspace = if wanted.everywhere { None } else { files::at(app, store)? };
    let mut listed = Vec::new();
    for run in found {
        // What is damaged of one run is said there, and keeps none from being listed.
        let (detail, about, usage, damaged) = match look_at(app, store, &run, wanted.which).await {
            Ok((detail, about, usage)) => (detail, about, usage, None),
            Err(failure) if failure.kind() == FailureKind::Damaged => (
                Detail::default(),
                About::default(),
                None,
                Some(failure.causes().first().cloned().unwrap_or_else(|| failure.title().to_owned())),
            ),
            Err(failure) => return Err(failure),
        };
        let About { worked_ms, step, inputs } = about;
        listed.push(ListedRun {
            stalled: ids.contains(&run.id),
            stands_still: match &workspace {
                Some(workspace) => !ids.contains(&run.id) && stands_still(workspace, &run).await?,
                None => false,
            },
            duration_ms: lasted(&run, app.now()),
            worked_ms,
            step,
            inputs,
            usage: usage.map(Into::into),
            damaged,
            question: detail.question,
            questions: (wanted.which == Which::Waiting).then_some(detail.questions),
            error: detail.error,
            queue: match store.queue() {
                Some(queue) => queue.place(&run.id).await?.map(Into::into),
                None => None,
            },
            run: run.into(),
        });
    }
    Ok(listed)
}

/// The runs that no process drives. Of holders on other hosts that shows only after a while, for which `waits` waits.
async fn dead(app: &App, store: &Arc<dyn Store>, waits: bool) -> Result<Vec<RunSummary>, Failure> {
    let (context, ttl) = (Context::system(Arc::clone(store)), LeaseOptions::default().ttl);
    let mut watch = LeaseWatch::default();
    let mut runs = stalled(&context, &mut watch, ttl).await?;
    if waits && runs.watched > 0 {
        let watched = if runs.watched == 1 { "one run".to_owned() } else { format!("{} runs", runs.watched) };
        app.note(&format!("watching {watched} on other hosts for {} s", ttl.as_secs()));
        context.clock.sleep(ttl).await;
        runs = stalled(&context, &mut watch, ttl).await?;
    }
    Ok(runs.found)
}

/// What a list says of a run's work.
#[derive(Default)]
struct About {
    worked_ms: Option<u64>,
    step: Option<String>,
    inputs: Json,
}

/// Reads the first entry of a run, and the newest ones; all of them if they are few.
async fn about(app: &App, log: &RunLog, run: &RunSummary) -> Result<About, Failure> {
    let is_workflow = run.kind == RunKind::Workflow;
    let mut about = About::default();
    if run.kind == RunKind::Workspace {
        return Ok(about);
    }
    // A list shows what can be read.
    if is_workflow
        && let Ok(first) = log.entry(Seq(0)).await
        && let Ok(body) = log.body(&first).await
    {
        about.inputs = body.field("input").and_then(|input| input.field("inputs")).map_or(Json::Null, value_json);
    }
    let is_short = log.head().seq.0 < FEW;
    let span = Span::newest(if is_short { usize::MAX } else { RECENT });
    let Ok(mut entries) = log.entries(span).await else { return Ok(about) };
    entries.sort_by_key(|entry| entry.seq);
    let is_step = |entry: &&SealedEntry| {
        let steps = [EntryKind::StepDone, EntryKind::EffectIntent, EntryKind::Asked];
        steps.contains(&entry.kind) && !entry.label.is_empty() && !entry.label.starts_with('#')
    };
    let is_over = run.status == RunStatus::Completed;
    about.step = entries.iter().rev().find(is_step).filter(|_| !is_over).map(|entry| entry.label.clone());
    if is_short {
        // What ends with a word from outside was waiting: for an answer, or for a process.
        let is_outside = |kind| matches!(kind, EntryKind::Claimed | EntryKind::Answer | EntryKind::Requested);
        let pairs = entries.windows(2).filter(|pair| !is_outside(pair[1].kind));
        let mut worked: Duration = pairs.map(|pair| pair[1].at.since(pair[0].at)).sum();
        if let Some(last) = entries.last().filter(|_| run.status == RunStatus::InProgress) {
            worked += app.now().since(last.at);
        }
        about.worked_ms = Some(millis(worked));
    }
    Ok(about)
}

/// What is read of a run's own log.
async fn look_at(
    app: &App,
    store: &Arc<dyn Store>,
    run: &RunSummary,
    which: Which,
) -> Result<(Detail, About, Option<TokenUsage>), Failure> {
    let log = RunLog::open(Arc::clone(store), &run.id).await?;
    let detail = match which {
        Which::Waiting | Which::Failed => detail(&log).await?,
        Which::All | Which::Stalled => Detail::default(),
    };
    Ok((detail, about(app, &log, run).await?, History::recent_usage(&log).await?))
}

#[derive(Default)]
struct Detail {
    question: Option<String>,
    questions: Vec<QuestionView>,
    error: Option<String>,
}

async fn detail(log: &RunLog) -> Result<Detail, Failure> {
    let history = History::read(log).await?;
    Ok(match history.state {
        RunState::Waiting(waiting) => {
            let questions: Vec<OpenQuestion> = history.questions.into_iter().map(OpenQuestion::from).collect();
            let first = match &questions[..] {
                [] => waiting.prompt,
                [only] => only.prompt.clone(),
                [first, ..] => format!("{}: {}", first.step, first.prompt),
            };
            let questions = questions.iter().map(QuestionView::from).collect();
            Detail { question: Some(first), questions, error: None }
        }
        RunState::Failed(failed) => Detail { error: Some(failed.message), ..Detail::default() },
        _ => Detail::default(),
    })
}
