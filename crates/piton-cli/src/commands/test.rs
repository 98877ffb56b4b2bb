//! `piton test`: runs cases as data, without paying a model.

use std::io::Write as _;
use std::path::PathBuf;

use futures_util::StreamExt as _;
use serde_json::json;

use crate::arguments::Test;
use crate::cases::{Case, Outcome, Verdict, find, junit, run};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: Test) -> Result<Exit, Failure> {
    let mut folders = Vec::new();
    for path in &arguments.cases {
        let found = find(path)
            .map_err(|message| Failure::fixable(format!("can't find cases in {}", path.display())).cause(message))?;
        if found.is_empty() {
            return Err(Failure::fixable(format!("there is no case in {}", path.display()))
                .hint("a case is a folder with `workflow.toml` and `out.toml` (or .yml, .json)."));
        }
        folders.extend(found);
    }
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    // In the order of their names, however many run at once.
    let mut ended = futures_util::stream::iter(folders).map(one).buffered(jobs.max(1));
    let mut outcomes = Vec::new();
    while let Some(outcome) = ended.next().await {
        tell(session, &outcome)?;
        outcomes.push(outcome);
    }
    drop(ended);
    if let Some(path) = &arguments.junit {
        let written = std::fs::File::create(path).and_then(|mut file| file.write_all(junit(&outcomes).as_bytes()));
        written.map_err(|error| Failure::fixable(format!("can't write {}", path.display())).because(&error))?;
    }
    summary(session, &outcomes)
}

/// One case, on a task of its own: what it computes doesn't hold up the others.
async fn one(folder: PathBuf) -> Outcome {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let work = tokio::spawn(async move {
        match Case::load(&folder) {
            Ok(case) => Ok(run(case).await),
            Err(message) => Err(message),
        }
    });
    let failed = |message: String| Outcome {
        name: name.clone(),
        verdict: Verdict::Failed(vec![message]),
        duration: std::time::Duration::ZERO,
    };
    match work.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(message)) => failed(message),
        Err(error) => failed(format!("the case could not be run: {error}")),
    }
}

fn tell(session: &Session, outcome: &Outcome) -> Result<(), Failure> {
    let name = clean(&outcome.name);
    if session.output.is_json() {
        let (status, details) = match &outcome.verdict {
            Verdict::Passed => ("passed", Vec::new()),
            Verdict::Failed(differences) => ("failed", differences.clone()),
            Verdict::Unsupported(reason) => ("unsupported", vec![reason.clone()]),
        };
        let milliseconds = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
        let object = json!({"case": outcome.name, "status": status, "details": details, "duration_ms": milliseconds});
        return session.output.object(&object);
    }
    match &outcome.verdict {
        Verdict::Passed => {
            session.output.detail(&format!("ok    {name}"));
            Ok(())
        }
        Verdict::Failed(differences) => {
            let lines: Vec<_> = differences.iter().map(|line| format!("      {}", clean(line))).collect();
            session.output.data(&format!("FAIL  {name}\n{}", lines.join("\n")))
        }
        Verdict::Unsupported(reason) => session.output.data(&format!("skip  {name}: {reason}")),
    }
}

fn summary(session: &Session, outcomes: &[Outcome]) -> Result<Exit, Failure> {
    let count = |wanted: fn(&Verdict) -> bool| outcomes.iter().filter(|outcome| wanted(&outcome.verdict)).count();
    let passed = count(|verdict| matches!(verdict, Verdict::Passed));
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let unsupported = outcomes.len() - passed - failed;
    if session.output.is_json() {
        session.output.object(&json!({"passed": passed, "failed": failed, "unsupported": unsupported}))?;
    } else {
        if unsupported > 0 {
            session.output.data(&format!("{unsupported} unsupported"))?;
        }
        session.output.data(&format!("{passed} passed, {failed} failed"))?;
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::UserFixable })
}
