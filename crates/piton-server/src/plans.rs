//! What was shown and waits for a word to be done. A plan is executed once, by its id, and is forgotten after a while or
//! with the server: what it would do then is planned anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use piton_app::Failure;
use piton_app::files::restore::{Previewed, Restoring};
use piton_app::runs::put_back::PuttingBack;
use piton_app::runs::retry::{RetryRun, Retrying};
use piton_app::runs::steer::Cancelling;
use piton_app::store::gc::Collecting;

use axum::http::StatusCode;
use serde_json::Value as Json;

use crate::problem::Problem;

/// How long a plan is kept.
pub(crate) const KEPT: Duration = Duration::from_secs(10 * 60);
/// How many are kept.
const MOST: usize = 64;

/// What a plan does.
#[expect(clippy::large_enum_variant, reason = "there are few, and each is in an allocation of its own")]
pub(crate) enum Pending {
    Cancel(Cancelling, String),
    Retry(Retrying, RetryRun),
    PutBack(PuttingBack),
    Files(Restoring, Previewed),
    Collect(Collecting),
}

/// A plan, until it is executed.
pub(crate) type Waiting = Arc<tokio::sync::Mutex<Option<Pending>>>;

/// A plan that is kept.
struct Kept {
    made: Instant,
    plan: Waiting,
    /// What was shown of it.
    shown: Arc<Json>,
}

impl Kept {
    fn holds(&self) -> bool {
        self.made.elapsed() < KEPT
    }
}

/// The plans that weren't executed yet.
#[derive(Default)]
pub(crate) struct Plans(Mutex<HashMap<String, Kept>>);

impl Plans {
    /// Keeps a plan, with what was shown of it.
    pub(crate) fn keep(&self, id: String, plan: Pending, shown: &Json) {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|_, kept| kept.holds());
        if plans.len() >= MOST {
            let oldest = plans.iter().min_by_key(|(_, kept)| kept.made).map(|(id, _)| id.clone());
            oldest.iter().for_each(|id| drop(plans.remove(id)));
        }
        let plan = Arc::new(tokio::sync::Mutex::new(Some(plan)));
        plans.insert(id, Kept { made: Instant::now(), plan, shown: Arc::new(shown.clone()) });
    }

    /// What was shown of a plan.
    pub(crate) fn shown(&self, id: &str) -> Result<Arc<Json>, Problem> {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.get(id).filter(|kept| kept.holds()).map(|kept| Arc::clone(&kept.shown)).ok_or_else(gone)
    }

    /// A plan that is to be looked at.
    pub(crate) fn find(&self, id: &str) -> Result<Waiting, Problem> {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.get(id).filter(|kept| kept.holds()).map(|kept| Arc::clone(&kept.plan)).ok_or_else(gone)
    }

    /// A plan that is to be executed, or forgotten: it can't be found again.
    pub(crate) fn take(&self, id: &str) -> Result<Waiting, Problem> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        found.filter(Kept::holds).map(|kept| kept.plan).ok_or_else(gone)
    }
}

/// There is no such plan, or none any more.
pub(crate) fn gone() -> Problem {
    let failure = Failure::not_found("there is no such plan any more")
        .hint("a plan is executed once, within ten minutes, by the server that made it: make it anew.");
    Problem::new(StatusCode::GONE, "gone", failure)
}
