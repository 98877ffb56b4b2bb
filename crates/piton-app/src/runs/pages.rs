//! Long lists of runs and steps in parts. A page costs what it shows.

use std::sync::Arc;

use piton_log::RunLog;
use piton_runtime::{Cursor, Pager};
use piton_types::{CheckpointRef, RunId, Seq, Timestamp};

use crate::app::App;
use crate::failure::Failure;
use crate::references::run_id;
use crate::runs::list::{ListRuns, list};
use crate::views::page::{RunsPage, SizedStep, StepsPage};
use crate::views::run::{StepView, WholeStep};

/// Values of more bytes than this are left out where small ones are wanted.
const SMALL: usize = 2 << 10;

/// Some runs, behind those that `cursor` ends.
pub async fn runs(app: &App, mut wanted: ListRuns, cursor: Option<&str>, limit: usize) -> Result<RunsPage, Failure> {
    if let Some(cursor) = cursor {
        wanted.query.after = Some(run_cursor(cursor).ok_or_else(|| no_cursor(cursor))?);
    }
    wanted.query.limit = Some(limit.saturating_add(1));
    let mut runs = list(app, wanted).await?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    let next = runs.last().filter(|_| more).map(|last| format!("{}~{}", last.run.updated_at.as_millis(), last.run.id));
    Ok(RunsPage { runs, next })
}

fn run_cursor(text: &str) -> Option<(Timestamp, RunId)> {
    let (millis, run) = text.split_once('~')?;
    Some((Timestamp::from_millis(millis.parse().ok()?), run.parse().ok()?))
}

/// Some attempts at steps of a run, behind those that `cursor` ends; without large values unless those are wanted.
pub async fn steps(
    app: &App,
    run: &RunId,
    cursor: Option<&str>,
    limit: usize,
    values: bool,
) -> Result<StepsPage, Failure> {
    let store = app.look().await?;
    let run = run_id(app, &store, run).await?;
    let log = RunLog::open(Arc::clone(&store), &run).await?;
    let mut pager = match cursor {
        None => Pager::new(&log),
        Some(cursor) => Pager::from(&log, step_cursor(cursor).ok_or_else(|| no_cursor(cursor))?),
    };
    let found = pager.steps(limit).await?;
    let next = pager.cursor().map(|Cursor { next, counts }| match counts {
        Some(counts) => format!("{}~{}", next.0, counts.0),
        None => next.0.to_string(),
    });
    let steps = found.iter().map(|past| {
        let id = CheckpointRef { run: run.clone(), seq: past.seq };
        let step = StepView::of(&past.step, past.undone);
        let size = |value: &serde_json::Value| value.to_string().len();
        let (input_bytes, output_bytes) = (size(&step.input), size(&step.output));
        let mut sized = SizedStep { step: WholeStep { id, run: run.clone(), step }, input_bytes, output_bytes };
        if !values {
            let step = &mut sized.step.step;
            for (value, bytes) in [(&mut step.input, input_bytes), (&mut step.output, output_bytes)] {
                if bytes > SMALL {
                    *value = serde_json::Value::Null;
                }
            }
        }
        sized
    });
    let page = StepsPage { steps: steps.collect(), next };
    store.close().await?;
    Ok(page)
}

fn step_cursor(text: &str) -> Option<Cursor> {
    let number = |text: &str| text.parse().ok().map(Seq);
    match text.split_once('~') {
        Some((next, counts)) => Some(Cursor { next: number(next)?, counts: Some(number(counts)?) }),
        None => Some(Cursor { next: number(text)?, counts: None }),
    }
}

fn no_cursor(text: &str) -> Failure {
    Failure::usage(format!("{text:?} is no cursor")).hint("a cursor is the `next` of the page before.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_were_written_and_nothing_else_is_one() {
        assert_eq!(run_cursor("12~r-1"), Some((Timestamp::from_millis(12), "r-1".parse().unwrap())));
        assert_eq!(step_cursor("7~5"), Some(Cursor { next: Seq(7), counts: Some(Seq(5)) }));
        assert_eq!(step_cursor("7"), Some(Cursor { next: Seq(7), counts: None }));
        for wrong in ["", "~", "x~r", "1~", "1~../x", "1~-1", "-1", "99999999999999999999~1"] {
            assert!(run_cursor(wrong).is_none() && step_cursor(wrong).is_none(), "{wrong}");
        }
    }
}
