//! Runs that this server drives: each is a task of its own, which goes on whether or not a client waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_app::debug::{Breaks, Debugging};
use piton_app::runs::drive::{Driving, Prepared, failure_of};
use piton_app::{App, Failure};
use piton_flow::{RunOutcome, SafeStopSignal};
use piton_runtime::Listener;
use piton_types::{Event, RunId, RunStatus};
use tokio::sync::{broadcast, oneshot, watch};

use crate::debugs::{Desk, Seen};
use crate::driven::Mark;
use crate::metrics::Counts;
use crate::server::Server;

/// Events that a slow listener may be behind; then it misses some. The log has what counts.
const BEHIND: usize = 1024;
/// How long between two looks whether all have stopped.
const LOOK: Duration = Duration::from_millis(20);

/// The runs that are driven.
#[derive(Clone, Default)]
pub(crate) struct Drives(Arc<Mutex<HashMap<RunId, Driven>>>);

struct Driven {
    /// Told from others, also when it goes by another run.
    seat: Arc<()>,
    /// None until what it needs was put together.
    stop: Option<SafeStopSignal>,
    live: broadcast::Sender<Arc<str>>,
    /// Where one speaks to its debugger, if it has one.
    desk: Option<Desk>,
}

/// A run that takes its place among those that are driven, and leaves it when it is dropped.
struct Seat {
    drives: Drives,
    seat: Arc<()>,
    /// What happens is told there.
    events: Listener,
    has_begun: watch::Receiver<bool>,
    /// For the next server; a debugged run is left to its user.
    mark: Option<Mark>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.drives.lock().retain(|_, driven| !Arc::ptr_eq(&driven.seat, &self.seat));
    }
}

impl Drives {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Driven>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runs that are driven here.
    pub(crate) fn runs(&self) -> Vec<RunId> {
        let mut runs: Vec<_> = self.lock().keys().cloned().collect();
        runs.sort();
        runs
    }

    pub(crate) fn has(&self, run: &RunId) -> bool {
        self.lock().contains_key(run)
    }

    /// What happens to a run that is driven here, from now on, as JSON.
    pub(crate) fn live(&self, run: &RunId) -> Option<broadcast::Receiver<Arc<str>>> {
        self.lock().get(run).map(|driven| driven.live.subscribe())
    }

    /// Where one speaks to the debugger of a run.
    pub(crate) fn desk(&self, run: &RunId) -> Option<Desk> {
        self.lock().get(run).and_then(|driven| driven.desk.clone())
    }

    /// What was driven as one run is another one from now on.
    pub(crate) fn turn(&self, from: &RunId, to: &RunId) {
        let mut drives = self.lock();
        if let Some(driven) = drives.remove(from) {
            drives.insert(to.clone(), driven);
        }
    }

    fn seat(&self, run: &RunId, counts: &Arc<Counts>) -> Result<Seat, Failure> {
        let (live, _) = broadcast::channel(BEHIND);
        let (begun, has_begun) = watch::channel(false);
        let mut drives = self.lock();
        if drives.contains_key(run) {
            return Err(Failure::refused(format!("run {run} is being driven by this server"))
                .hint(format!("`piton stop {run}` stops it.")));
        }
        let seat = Arc::new(());
        let driven = Driven { seat: Arc::clone(&seat), stop: None, live: live.clone(), desk: None };
        drives.insert(run.clone(), driven);
        Ok(Seat {
            drives: self.clone(),
            seat,
            events: listener(live, begun, Arc::clone(counts)),
            has_begun,
            mark: None,
        })
    }

    /// Stops all in peace, and waits so long for it.
    pub(crate) async fn stop_all(&self, grace: Duration) {
        for driven in self.lock().values_mut() {
            driven.stop.iter().for_each(|stop| stop.trigger(grace.as_secs()));
            // A debugger that no one can speak to leaves its run.
            driven.desk = None;
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
    drive_again(server, prepared, 0).await
}

/// The same for a run that was taken up so many times from servers that died.
pub(crate) async fn drive_again(server: &Arc<Server>, prepared: Prepared, times: u32) -> Result<RunId, Failure> {
    let (run, app) = (prepared.run.clone(), Arc::clone(&server.app));
    let mut seat = server.drives.seat(&run, &server.counts)?;
    seat.mark = server.marks.as_ref().map(|marks| marks.mark(&run, times)).transpose()?;
    let (driving, work) = Driving::prepare(&app, prepared, seat.events.clone()).await?;
    let stop = driving.stop();
    let work = {
        let app = Arc::clone(&app);
        async move {
            let ended = driving.go(&app, work).await;
            driving.finish(&app, ended).await
        }
    };
    go(app, run, seat, stop, None, work).await
}

/// The same under a debugger.
pub(crate) async fn debug(server: &Arc<Server>, prepared: Prepared, breaks: Breaks) -> Result<RunId, Failure> {
    let (run, app) = (prepared.run.clone(), Arc::clone(&server.app));
    let seat = server.drives.seat(&run, &server.counts)?;
    let (mut debugging, console) = Debugging::prepare(&app, prepared, breaks.clone(), seat.events.clone()).await?;
    let desk = Desk::over(console, &breaks, server.drives.clone(), run.clone());
    let stop = debugging.stop();
    let work = {
        let app = Arc::clone(&app);
        async move {
            let ended = debugging.go(&app).await;
            Ok(debugging.finish(&app, ended).await?.outcome)
        }
    };
    go(app, run, seat, stop, Some(desk), work).await
}

/// Does the work of a run as a task of its own, and waits until it has begun.
async fn go(
    app: Arc<App>,
    run: RunId,
    seat: Seat,
    stop: SafeStopSignal,
    desk: Option<Desk>,
    work: impl Future<Output = Result<RunOutcome, Failure>> + Send + 'static,
) -> Result<RunId, Failure> {
    let desk_seen = desk.as_ref().map(Desk::seen);
    if let Some(driven) = seat.drives.lock().get_mut(&run) {
        driven.stop = Some(stop);
        driven.desk = desk;
    }
    let stands = stands(desk_seen);
    let mut has_begun = seat.has_begun.clone();
    let has_begun_at_last = has_begun.clone();
    let (tell, over) = oneshot::channel();
    tokio::spawn(async move {
        let _seat = seat;
        let failure = match work.await {
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
        // One that is over begins nothing, and stands all the same.
        () = stands => Ok(run),
        failure = over => match failure {
            // It began and failed at once: that is in its log.
            Ok(Some(failure)) if !*has_begun_at_last.borrow() => Err(failure),
            _ => Ok(run),
        },
    }
}

/// Waits until a debugged run stands; for ever if it isn't debugged, or doesn't come to that.
async fn stands(seen: Option<watch::Receiver<Seen>>) {
    if let Some(mut seen) = seen
        && seen.wait_for(|seen| seen.standing).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
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
