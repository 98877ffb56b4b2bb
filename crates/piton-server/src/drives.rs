//! Runs that this server drives: each is a task of its own, which goes on whether or not a client waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use piton_app::runs::drive::{Driving, Prepared, failure_of};
use piton_app::{App, Failure};
use piton_flow::SafeStopSignal;
use piton_runtime::Listener;
use piton_types::{Event, RunId, RunStatus};
use tokio::sync::{broadcast, oneshot, watch};

use crate::metrics::Counts;
use crate::server::Server;

/// Events that a slow listener may be behind; then it misses some. The log has what counts.
const BEHIND: usize = 1024;
/// How long between two looks whether all have stopped.
const LOOK: Duration = Duration::from_millis(20);

/// The runs that are driven.
#[derive(Default)]
pub(crate) struct Drives(Arc<Mutex<HashMap<RunId, Driven>>>);

struct Driven {
    /// None until what it needs was put together.
    stop: Option<SafeStopSignal>,
    live: broadcast::Sender<Arc<str>>,
}

/// A run that takes its place among those that are driven, and leaves it when it is dropped.
struct Seat {
    drives: Arc<Mutex<HashMap<RunId, Driven>>>,
    run: RunId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.run);
    }
}

impl Drives {
    /// The runs that are driven here.
    pub(crate) fn runs(&self) -> Vec<RunId> {
        let mut runs: Vec<_> = self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        runs.sort();
        runs
    }

    pub(crate) fn has(&self, run: &RunId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(run)
    }

    /// What happens to a run that is driven here, from now on, as JSON.
    pub(crate) fn live(&self, run: &RunId) -> Option<broadcast::Receiver<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(run).map(|driven| driven.live.subscribe())
    }

    fn seat(&self, run: &RunId) -> Result<(Seat, broadcast::Sender<Arc<str>>), Failure> {
        let (live, _) = broadcast::channel(BEHIND);
        let mut drives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if drives.contains_key(run) {
            return Err(Failure::refused(format!("run {run} is being driven by this server"))
                .hint(format!("`piton stop {run}` stops it.")));
        }
        drives.insert(run.clone(), Driven { stop: None, live: live.clone() });
        Ok((Seat { drives: Arc::clone(&self.0), run: run.clone() }, live))
    }

    /// Stops all in peace, and waits so long for it.
    pub(crate) async fn stop_all(&self, grace: Duration) {
        for driven in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            driven.stop.iter().for_each(|stop| stop.trigger(grace.as_secs()));
        }
        let all = async {
            while !self.runs().is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(grace + Duration::from_secs(5), all).await;
    }
}

/// Drives a run. When this returns it has begun or gone on, or is over already; the failure says why it did neither.
pub(crate) async fn drive(server: &Arc<Server>, prepared: Prepared) -> Result<RunId, Failure> {
    let run = prepared.run.clone();
    let (seat, live) = server.drives.seat(&run)?;
    let (begun, mut has_begun) = watch::channel(false);
    let has_begun_at_last = has_begun.clone();
    let events = listener(live, begun, Arc::clone(&server.counts));
    let app = Arc::clone(&server.app);
    let (driving, work) = Driving::prepare(&app, prepared, events).await?;
    if let Some(driven) = server.drives.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&run) {
        driven.stop = Some(driving.stop());
    }
    let (tell, over) = oneshot::channel();
    tokio::spawn(async move {
        let _seat = seat;
        let ended = driving.go(&app, work).await;
        let failure = match driving.finish(&app, ended).await {
            Err(failure) => Some(failure),
            Ok(outcome) if outcome.status == RunStatus::Failed => Some(failure_of(&outcome)),
            Ok(_) => None,
        };
        if let Err(Some(failure)) = tell.send(failure) {
            tell_operator(&app, &failure);
        }
    });
    tokio::select! {
        biased;
        // If it never begins, the other one tells why.
        Ok(_) = has_begun.wait_for(|begun| *begun) => Ok(run),
        failure = over => match failure {
            // It began and failed at once: that is in its log.
            Ok(Some(failure)) if !*has_begun_at_last.borrow() => Err(failure),
            _ => Ok(run),
        },
    }
}

fn tell_operator(app: &App, failure: &Failure) {
    app.warn(&failure.message());
}

/// Counts events and hands them to those who listen.
fn listener(live: broadcast::Sender<Arc<str>>, begun: watch::Sender<bool>, counts: Arc<Counts>) -> Listener {
    Listener::new(move |event| {
        match event {
            Event::RunStarted { .. } => drop(begun.send_replace(true)),
            Event::StepFinished { duration, .. } => counts.step(*duration, false),
            Event::StepFailed { .. } => counts.step(Duration::ZERO, true),
            _ => {}
        }
        if live.receiver_count() > 0
            && let Ok(text) = serde_json::to_string(event)
        {
            // If all have gone meanwhile, no one misses it.
            let _ = live.send(text.into());
        }
    })
}
