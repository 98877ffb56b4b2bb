//! What is shown before it is done: the plan has an id, and the id does it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use piton_app::Failure;
use piton_app::files::Capture;
use piton_app::files::restore::{Conflicts, Restoring, Selected};
use piton_app::runs::put_back::PuttingBack;
use piton_app::runs::retry::{Ready, RetryRun, Retrying};
use piton_app::runs::steer::Cancelling;
use piton_app::store::gc::Collecting;
use piton_workspace::{CannotAsk, ConflictResolution};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::acts::{drive_prepared, pairs};
use super::{Answer, Call, answer, as_json, nothing, view};
use crate::plans::{KEPT, Pending, gone};
use crate::problem::Problem;
use crate::query::parse;

/// What a plan is made of.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Wanted {
    /// Give a run up for good.
    Cancel {
        /// The run.
        run: String,
        /// Why, for its log.
        reason: Option<String>,
    },
    /// Try a run again.
    Retry {
        /// The run.
        run: String,
        /// The first step to do again; the one that failed if none is named.
        from: Option<String>,
        /// What is to be different from there on: then a new run branches off.
        #[serde(default)]
        set: BTreeMap<String, Json>,
    },
    /// Put the state of a run back.
    PutBack {
        /// The checkpoint.
        to: String,
    },
    /// Take back what was done to the files.
    Undo {
        /// A run, a step or a checkpoint; the newest operation if none is named.
        #[serde(rename = "ref")]
        reference: Option<String>,
        /// Take back, too, what changed during an agent's turn but in none of its tool calls.
        #[serde(default)]
        unattributed: bool,
        /// Take back, too, what changed while another run was at work.
        #[serde(default)]
        both: bool,
        /// What becomes of paths that two sides changed.
        #[serde(default)]
        conflict: Conflict,
    },
    /// Take back the last undo.
    Redo {
        /// What becomes of paths that two sides changed.
        #[serde(default)]
        conflict: Conflict,
    },
    /// Files back to a checkpoint.
    Restore {
        /// The checkpoint.
        to: String,
        /// Only these files and folders.
        #[serde(default)]
        only: Vec<PathBuf>,
        /// But not these.
        #[serde(default)]
        not: Vec<PathBuf>,
        /// All files become as they were, those that the user changed too.
        #[serde(default)]
        exact: bool,
        /// What becomes of paths that two sides changed.
        #[serde(default)]
        conflict: Conflict,
    },
    /// Give back the space of what needn't be kept.
    Gc {
        /// At once, without the time in which it could be taken back.
        #[serde(default)]
        now: bool,
    },
}

/// Nothing more is to be said.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// What becomes of a path that two sides changed.
#[derive(Deserialize, JsonSchema, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub(super) enum Conflict {
    /// Texts that can be merged are; the rest is refused.
    #[default]
    Merge,
    /// Nothing is written.
    Refuse,
    /// The checkpoint's version.
    Checkpoint,
    /// What is there.
    Current,
    /// What is there stays, with the checkpoint's version beside it.
    Beside,
    /// Texts are merged, with markers where that doesn't work out.
    Markers,
}

fn conflicts(conflict: Conflict, unattributed: bool, shared: bool) -> Conflicts {
    let resolution = match conflict {
        Conflict::Merge => ConflictResolution::Merge,
        Conflict::Refuse => ConflictResolution::Refuse,
        Conflict::Checkpoint => ConflictResolution::PreferCheckpoint,
        Conflict::Current => ConflictResolution::PreferCurrent,
        Conflict::Beside => ConflictResolution::Beside,
        Conflict::Markers => ConflictResolution::Markers,
    };
    Conflicts { resolution, ask: Arc::new(CannotAsk), config: None, model: None, unattributed, shared }
}

pub(super) async fn plan(call: Call) -> Answer {
    let app = &call.server.app;
    let wanted: Wanted = call.taken()?;
    let (act, pending, shown) = match wanted {
        Wanted::Cancel { run, reason } => {
            let planned = Cancelling::plan(app, &parse("run", &run)?).await?;
            let shown = planned.plan.as_ref().map(as_json).transpose()?;
            let shown = shown.unwrap_or_else(|| json!({ "plan": "it was cancelled before", "entails": [] }));
            let reason = match reason {
                Some(reason) => reason,
                None => format!("cancelled by {}", call.who()?.name()),
            };
            ("cancel", Pending::Cancel(planned, reason), shown)
        }
        Wanted::Retry { run, from, set } => {
            let from = from.as_deref().map(|from| parse("from", from)).transpose()?;
            let (run, set) = (parse("run", &run)?, pairs(&set)?);
            let wanted = RetryRun { run, from, set, config: call.server.config.clone() };
            let planned = Retrying::plan(app, &wanted).await?;
            let shown = as_json(&planned.plan)?;
            ("retry", Pending::Retry(planned, wanted), shown)
        }
        Wanted::PutBack { to } => {
            let planned = PuttingBack::plan(app, &parse("to", &to)?, false).await?;
            let shown = as_json(&planned.plan)?;
            ("put_back", Pending::PutBack(planned), shown)
        }
        Wanted::Undo { reference, unattributed, both, conflict } => {
            let reference = reference.as_deref().map(|reference| parse("ref", reference)).transpose()?;
            let how = conflicts(conflict, unattributed, both);
            let restoring = Restoring::undo(app, reference.as_ref(), &how, Capture::default()).await?;
            files(&call, "undo", restoring).await?
        }
        Wanted::Redo { conflict } => {
            let how = conflicts(conflict, false, false);
            let restoring = Restoring::redo(app, &how, Capture::default()).await?;
            files(&call, "redo", restoring).await?
        }
        Wanted::Restore { to, only, not, exact, conflict } => {
            let selected = Selected { only, not, exact, times: false };
            let how = conflicts(conflict, false, false);
            let (restoring, _) = Restoring::to(app, &parse("to", &to)?, &selected, &how, Capture::default()).await?;
            files(&call, "restore", restoring).await?
        }
        Wanted::Gc { now } => {
            let planned = Collecting::plan(app, |rules| rules, false, now).await?;
            let shown = as_json(&planned.plan)?;
            ("gc", Pending::Collect(planned), shown)
        }
    };
    let id = call.server.plan_id()?;
    let mut shown = shown;
    shown["id"] = id.as_str().into();
    shown["act"] = act.into();
    shown["expires_at"] = app.now().after(KEPT).to_string().into();
    call.server.plans.keep(id, pending, &shown);
    answer(StatusCode::CREATED, &shown)
}

/// A change of files, with all that it would do.
async fn files(call: &Call, act: &'static str, restoring: Restoring) -> Result<(&'static str, Pending, Json), Problem> {
    let previewed = restoring.preview(&call.server.app).await?;
    if let Some(refusal) = previewed.refusal() {
        return Err(refusal.into());
    }
    let seen = previewed.view(&restoring.workspace, usize::MAX).await?;
    let entails: Vec<_> = seen.changes.iter().map(|change| format!("{} {}", change.action, change.path)).collect();
    let shown = json!({
        "plan": seen.restore,
        "entails": entails,
        "done": false,
        "is_free": previewed.is_free(),
        "beside": previewed.beside(),
        "files": as_json(&seen)?,
    });
    Ok((act, Pending::Files(restoring, previewed), shown))
}

pub(super) async fn execute(call: Call) -> Answer {
    let Nothing {} = call.taken()?;
    let app = &call.server.app;
    let waiting = call.server.plans.take(&call.part::<String>("id")?)?;
    let pending = waiting.lock().await.take().ok_or_else(gone)?;
    match pending {
        Pending::Cancel(planned, reason) => view(&planned.carry_out(&reason).await?.0),
        Pending::Retry(planned, wanted) => {
            let Ready { run, branched, queued, drive } = planned.carry_out(app, &wanted).await?;
            let is_driven = match drive {
                Some(prepared) => {
                    drive_prepared(&call, prepared).await?;
                    true
                }
                None => false,
            };
            let branched = branched.map(|at| at.to_string());
            let said = json!({ "id": run, "run": run, "branched": branched, "queued": queued, "started": is_driven });
            answer(StatusCode::OK, &said)
        }
        Pending::PutBack(planned) => view(&planned.carry_out().await?),
        Pending::Files(restoring, previewed) => {
            if !previewed.is_free() {
                let failure = Failure::refused("paths that two sides changed keep it from being done")
                    .hint("plan it anew with `conflict`, or without those paths. Nothing was changed.");
                return Err(failure.into());
            }
            let restored = restoring.carry_out(app, previewed).await;
            restoring.close(app).await?;
            view(&restored?)
        }
        Pending::Collect(planned) => view(&planned.carry_out(app).await?),
    }
}

pub(super) async fn diff(call: Call) -> Answer {
    let path: String = call.query.needed("path")?;
    let waiting = call.server.plans.find(&call.part::<String>("id")?)?;
    let pending = waiting.lock().await;
    let diff = match &*pending {
        Some(Pending::Files(restoring, previewed)) => previewed.diff(&restoring.workspace, &path).await?,
        Some(_) => return Err(Failure::usage("that plan changes no files").into()),
        None => return Err(gone()),
    };
    answer(StatusCode::OK, &json!({ "path": path, "diff": diff }))
}

pub(super) async fn forget(call: Call) -> Answer {
    drop(call.server.plans.take(&call.part::<String>("id")?)?);
    Ok(nothing())
}
