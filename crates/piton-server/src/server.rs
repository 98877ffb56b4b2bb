//! What all requests share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use piton_app::{App, Failure};
use tokio::sync::Semaphore;

use crate::audit::Audit;
use crate::driven::Marks;
use crate::drives::Drives;
use crate::gate::Gate;
use crate::metrics::Counts;
use crate::plans::Plans;
use crate::tokens::Tokens;

/// Requests that are worked on at once; others wait. Those that wait for a question are among them.
const AT_ONCE: usize = 256;
/// Event streams at once.
const STREAMS: usize = 512;
/// How long runs that the server drives may take to stop in peace.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// What all requests share.
pub(crate) struct Server {
    pub(crate) app: Arc<App>,
    /// How it is reached over HTTP; a server of one agent, over pipes, has no door.
    pub(crate) door: Option<Door>,
    pub(crate) audit: Audit,
    pub(crate) drives: Drives,
    /// What it drives, for the server after it; none if there is none after it.
    pub(crate) marks: Option<Marks>,
    pub(crate) plans: Plans,
    pub(crate) counts: Arc<Counts>,
    /// Models, credentials and limits of the runs that it drives.
    pub(crate) config: Option<PathBuf>,
    pub(crate) work: Semaphore,
    pub(crate) streams: Arc<Semaphore>,
    plan_ids: AtomicU64,
}

/// What stands before every request over HTTP.
pub(crate) struct Door {
    pub(crate) tokens: Tokens,
    pub(crate) gate: Gate,
    /// Whether cookies are for encrypted connections only.
    pub(crate) is_secure: bool,
}

impl Server {
    pub(crate) fn new(
        app: App,
        door: Option<Door>,
        audit: Audit,
        marks: Option<Marks>,
        config: Option<PathBuf>,
    ) -> Self {
        Self {
            app: Arc::new(app),
            door,
            audit,
            drives: Drives::default(),
            marks,
            plans: Plans::default(),
            counts: Arc::default(),
            config,
            work: Semaphore::new(AT_ONCE),
            streams: Arc::new(Semaphore::new(STREAMS)),
            plan_ids: AtomicU64::new(0),
        }
    }

    /// What stands before requests over HTTP.
    pub(crate) fn door(&self) -> Result<&Door, Failure> {
        self.door.as_ref().ok_or_else(|| Failure::internal("a server without a door has no sessions"))
    }

    /// A name for a plan that can't be guessed from another.
    pub(crate) fn plan_id(&self) -> Result<String, Failure> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|error| Failure::fixable("the system gives no random numbers").because(&error))?;
        let number = self.plan_ids.fetch_add(1, Ordering::Relaxed);
        Ok(format!("plan-{number}-{:016x}", u64::from_be_bytes(bytes)))
    }
}
