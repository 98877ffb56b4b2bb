//! The runs of a folder, or of all, newest first. Reads the index, and of the runs that it lists the newest entries;
//! whole logs only for the question or the error that was asked for.

use std::collections::HashSet;
use std::sync::Arc;

use piton_flow::OpenQuestion;
use piton_log::RunLog;
use piton_runtime::recovery::stalled;
use piton_runtime::{Context, History, LeaseOptions, LeaseWatch};
pub use piton_store::RunQuery;
use piton_store::Store;
use piton_types::{RunId, RunState, RunStatus, RunSummary};

use crate::app::App;
use crate::failure::Failure;
use crate::runs::usage;
use crate::views::run::{ListedRun, QuestionView, lasted};

/// Which runs are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All of them.
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
    /// What the store is asked for; the states are those of `which`. The limit is that of each store.
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
        Which::All => Vec::new(),
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
    let mut listed = Vec::new();
    for run in found {
        let log = RunLog::open(Arc::clone(store), &run.id).await?;
        let detail = match wanted.which {
            Which::Waiting | Which::Failed => detail(&log).await?,
            Which::All | Which::Stalled => Detail::default(),
        };
        listed.push(ListedRun {
            stalled: ids.contains(&run.id),
            duration_ms: lasted(&run, app.now()),
            usage: usage::recent(&log).await?.map(Into::into),
            question: detail.question,
            questions: (wanted.which == Which::Waiting).then_some(detail.questions),
            error: detail.error,
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
