//! The state of a run back to a checkpoint. An entry of the log says so; nothing is deleted.

use std::sync::Arc;

use piton_log::RunLog;
use piton_runtime::{Context, StartAt};
use piton_store::Store;
use piton_types::{CheckpointRef, RunId, RunStatus, Seq};

use crate::app::App;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::references::{Reference, Target, resolve};
use crate::runs::back::{entails, put_back};
use crate::views::entry::entry_id;
use crate::views::run::PutBackView;

/// A run whose state is to be put back.
pub struct PuttingBack {
    store: Arc<dyn Store>,
    run: RunId,
    to: CheckpointRef,
    seq: Seq,
    usage_back: bool,
    /// What that means.
    pub plan: Plan,
}

impl PuttingBack {
    /// Finds out what putting a run back to an entry means; with `usage_back` what it had used is put back, too.
    pub async fn plan(app: &App, reference: &Reference, usage_back: bool) -> Result<Self, Failure> {
        let store = app.store().await?;
        let (log, entry) = match resolve(app, &store, reference).await? {
            Target::Entry(log, entry) | Target::Step(log, entry) => (log, entry),
            Target::Run(log) => {
                return Err(Failure::usage(format!("{} is a run; which of its checkpoints?", log.run())).hint(
                    format!(
                        "`piton log {}` shows them; write RUN@7, or RUN@- for the one before the newest.",
                        log.run()
                    ),
                ));
            }
            Target::Blob(..) | Target::File(..) => {
                return Err(Failure::usage(format!("{reference} is a value, not a checkpoint")));
            }
        };
        let (run, to) = (log.run().clone(), entry_id(log.run(), &entry));
        let mut plan = Plan::new(format!("put run {run} back to {to}"));
        let context = Context::system(Arc::clone(&store));
        entails(&mut plan, &context, &run, &StartAt::Entry(entry.seq), entry.seq).await?;
        if usage_back {
            plan.line("what it had used by then is what it has used");
        }
        Ok(Self { store, run, to, seq: entry.seq, usage_back, plan })
    }

    /// Puts it back, and leaves it paused.
    pub async fn carry_out(self) -> Result<PutBackView, Failure> {
        let Self { store, run, to, seq, usage_back, .. } = self;
        let context = Context::system(Arc::clone(&store));
        put_back(&context, &run, StartAt::Entry(seq), usage_back, &format!("put back to {to}")).await?;
        let now = RunLog::open(Arc::clone(&store), &run).await?.newest_checkpoint().await?;
        store.close().await?;
        let checkpoint = now.map(|entry| entry_id(&run, &entry));
        Ok(PutBackView { run, status: RunStatus::Paused, restored: to, checkpoint })
    }
}
