//! `submit --every`: runs that begin again and again, by a pattern of cron, in UTC.

use std::sync::Arc;

use croner::Cron;
use piton_flow::{FlowError, Schedule, create_following, schedule_of};
use piton_runtime::{Context, RunError, Submission, submit};
use piton_store::{StoreError, Waiting};
use piton_types::{RunId, Timestamp};

use crate::failure::Failure;

/// Why the next moment of a schedule isn't known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScheduleError {
    #[error("{every:?} is no schedule: {detail}")]
    Pattern { every: String, detail: String },
    #[error("{every:?} has no moment after {after}")]
    Over { every: String, after: Timestamp },
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Self {
        Self::usage(error.to_string())
            .hint("nothing was created. Minute, hour, day, month, weekday, in UTC: `piton submit flow.yml --every \"0 3 * * *\"`.")
    }
}

/// The first moment of a schedule after another one.
pub(crate) fn next_after(every: &str, after: Timestamp) -> Result<Timestamp, ScheduleError> {
    let wrong = |detail: String| ScheduleError::Pattern { every: every.to_owned(), detail };
    let cron: Cron = every.parse().map_err(|error: croner::errors::CronError| wrong(error.to_string()))?;
    let moment = jiff::Timestamp::from_millisecond(after.as_millis()).map_err(|error| wrong(error.to_string()))?;
    let found = cron.find_next_occurrence(&moment.to_zoned(jiff::tz::TimeZone::UTC), false);
    let found = found.map_err(|_| ScheduleError::Over { every: every.to_owned(), after })?;
    Ok(Timestamp::from_millis(found.timestamp().as_millisecond()))
}

/// The id of a schedule's run at a moment: the same for each process that makes it.
pub(crate) fn id_at(key: &str, at: Timestamp) -> Result<RunId, Failure> {
    let hash = blake3::hash(key.as_bytes()).to_hex();
    let when: String = at.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let id = format!("every-{}-{when}", &hash[..12]);
    id.parse().map_err(|error| Failure::internal("a moment makes no id").because(&error))
}

/// The id of the same schedule's run at another moment.
fn id_like(run: &RunId, at: Timestamp) -> Result<RunId, RunError> {
    let when: String = at.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let stem = run.as_str().rsplit_once('-').map_or(run.as_str(), |(stem, _)| stem);
    Ok(format!("{stem}-{when}").parse().map_err(|_| StoreError::no_run(run))?)
}

/// Creates the run that follows this one, if it is of a schedule, and queues it. Moments that passed meanwhile are left out.
/// A run for the next moment that is there, or was and is cancelled, stays as it is.
pub(crate) async fn follow(context: &Context, taken: &Waiting) -> Result<(), ScheduleError> {
    let Some(schedule) = schedule_of(context, &taken.run).await? else { return Ok(()) };
    let mut at = next_after(&schedule.every, schedule.at)?;
    let there = |id: RunId| {
        let store = Arc::clone(&context.store);
        async move { store.head(&id).await.map(|head| head.is_some()).map_err(RunError::Store) }
    };
    let id = id_like(&taken.run, at).map_err(FlowError::Run)?;
    if there(id).await.map_err(FlowError::Run)? {
        return Ok(());
    }
    // By the clock of the store: a worker whose own is wrong leaves no moment out.
    let now = match context.store.queue() {
        Some(queue) => queue.now().await.map_err(|error| FlowError::Run(error.into()))?,
        None => context.clock.now(),
    };
    if at < now {
        at = next_after(&schedule.every, now)?;
    }
    let id = id_like(&taken.run, at).map_err(FlowError::Run)?;
    let next = create_following(context, &taken.run, id, Schedule { at, ..schedule }).await?;
    let labels = taken.labels.iter().cloned().collect();
    let submission = Submission { labels, priority: taken.priority, due: Some(at), limit: taken.limit.clone() };
    submit(context, &next, submission).await.map_err(FlowError::Run)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_moment_is_behind_the_one_before() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        let next = |every, after| next_after(every, at(after)).unwrap();
        assert_eq!(next("0 3 * * *", "2026-11-18T02:59:59Z"), at("2026-11-18T03:00:00Z"));
        assert_eq!(next("0 3 * * *", "2026-11-18T03:00:00Z"), at("2026-11-19T03:00:00Z"));
        assert_eq!(next("*/15 * * * MON", "2026-11-18T03:00:00Z"), at("2026-11-23T00:00:00Z"));
        for wrong in ["", "x", "61 * * * *", "* * *"] {
            assert!(
                matches!(next_after(wrong, at("2026-11-18T03:00:00Z")), Err(ScheduleError::Pattern { .. })),
                "{wrong:?}"
            );
        }
        let never = next_after("0 0 31 2 *", at("2026-11-18T03:00:00Z"));
        assert!(matches!(never, Err(ScheduleError::Over { .. } | ScheduleError::Pattern { .. })), "{never:?}");
    }

    #[test]
    fn the_run_of_a_moment_has_one_name() {
        let (first, second) = (Timestamp::from_millis(0), Timestamp::from_millis(60_000));
        let id = id_at("key", first).unwrap();
        assert_eq!(id_like(&id, second).unwrap(), id_at("key", second).unwrap());
    }
}
