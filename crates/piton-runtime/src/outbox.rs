//! Steps that ended and whose entries are still to be written. They count at once for whoever drives the run, and a
//! task of their own writes them in order, several in one commit if the store can.
//!
//! Nothing overtakes them: every other write waits in [`Core::writer`] until they are in the log. So whatever is done
//! after a write, touching the world or telling somebody, is done with all of them in the log. A process that dies
//! before loses the last of them, and does that work again; so only what follows from other results goes this way.
//!
//! A write that fails breaks the handle, as any does.

use std::collections::{HashSet, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use async_trait::async_trait;
use piton_store::{Draft, EncodedBody, StoreError};
use piton_types::{EntryKind, Seq, StepPath, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::core::{Core, RACES};
use crate::step::StepDone;
use crate::turn::Turn;
use crate::{Run, RunError, StepRecord};

/// How many steps may wait to be written. Whoever is faster than the store waits.
const MOST: u64 = 64;

/// How often whoever writes looks for more before he goes.
const LOOKS: u32 = 16;

/// How many are written in one commit, at most.
const TOGETHER: usize = 16;

/// A step that ended, to be written.
#[derive(Debug)]
pub struct EndedStep {
    step: Arc<StepRecord>,
    body: EncodedBody,
}

impl EndedStep {
    /// The attempt, as the log will have it.
    pub fn record(&self) -> &Arc<StepRecord> {
        &self.step
    }

    /// Its entry.
    pub(crate) fn draft(&self) -> Draft<'static> {
        let mut draft = Draft::new(EntryKind::StepDone, Timestamp::default());
        draft.label = self.step.path.to_string();
        draft.encoded = Some(self.body.clone());
        draft
    }
}

/// What an engine does when a step that it [records later](Run::record_later) is written.
#[async_trait]
pub trait Later: Send {
    /// Writes the step, by [`Turn::write`], as a checkpoint if it wants to. If others write to the run meanwhile, it is
    /// asked once more, after [`again`](Self::again).
    async fn write(&mut self, turn: &mut Turn<'_>, step: &EndedStep) -> Result<(), RunError>;

    /// It will be written, or the run takes no more entries.
    fn queued(&mut self) {}

    /// This step, and what was to be written with it, isn't in the log after all: the states that were saved with it are
    /// to be loaded again.
    fn again(&mut self);

    /// It is in the log.
    fn written(self: Box<Self>, seq: Seq);
}

struct Waiting {
    ended: EndedStep,
    later: Box<dyn Later>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// How many ever came, and how many of them were written.
    came: u64,
    written: u64,
    /// The steps of which no entry was made yet, in order.
    unmade: VecDeque<StepPath>,
    is_served: bool,
    /// How many others want to write what they know, or do. Nothing may come in between.
    turns: usize,
    /// Why one couldn't be written, until somebody asks.
    failure: Option<RunError>,
}

/// The steps that wait to be written.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    /// Some were written, or never will be.
    changed: Notify,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("waiting", &self.queue().waiting.len()).finish_non_exhaustive()
    }
}

impl Outbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code that holds this lock panics")
    }

    /// Why one couldn't be written, to who asks first.
    fn check(&self) -> Result<(), RunError> {
        self.queue().failure.take().map_or(Ok(()), Err)
    }

    async fn wait_until(&self, is_so: impl Fn(&Queue) -> bool) -> Result<(), RunError> {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From now on, nothing that changes is missed.
            changed.as_mut().enable();
            self.check()?;
            if is_so(&self.queue()) {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Waits until all are written that came before, or never will be. More may come meanwhile, and needn't.
    pub(crate) async fn caught_up(&self) -> Result<(), RunError> {
        let count = self.queue().came;
        self.wait_until(|queue| queue.written >= count).await
    }

    /// Waits until another one may come.
    async fn has_room(&self) -> Result<(), RunError> {
        self.wait_until(|queue| queue.came - queue.written < MOST && queue.turns == 0).await
    }

    /// Lets no other one come until somebody has written what he knows now.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.queue().turns += 1;
        Closed(self)
    }

    /// The steps of which no entry was made yet.
    pub(crate) fn unmade(&self) -> HashSet<StepPath> {
        self.queue().unmade.iter().cloned().collect()
    }

    /// An entry was made of the first of those of which none was.
    pub(crate) fn made(&self) {
        self.queue().unmade.pop_front();
    }

    /// No entry of these counts, whatever was [made](Self::made) of them.
    fn unmake(&self, steps: &VecDeque<Waiting>) {
        let queue = &mut *self.queue();
        queue.unmade.clear();
        let paths = steps.iter().chain(&queue.waiting).map(|waiting| waiting.ended.step.path.clone());
        queue.unmade.extend(paths);
    }

    /// Adds a step; `true` if nobody serves the queue.
    fn push(&self, waiting: Waiting) -> bool {
        let mut queue = self.queue();
        queue.unmade.push_back(waiting.ended.step.path.clone());
        queue.waiting.push_back(waiting);
        queue.came += 1;
        !std::mem::replace(&mut queue.is_served, true)
    }

    /// The next ones to be written; without any, whoever serves the queue is done.
    fn take(&self) -> VecDeque<Waiting> {
        let mut queue = self.queue();
        let count = queue.waiting.len().min(TOGETHER);
        let next: VecDeque<_> = queue.waiting.drain(..count).collect();
        queue.is_served = !next.is_empty();
        next
    }

    /// Whoever served it goes; `false` if he leaves something behind.
    fn leave(&self) -> bool {
        let mut queue = self.queue();
        queue.is_served = false;
        queue.came == queue.written
    }

    /// So many of those that were being written are in the log.
    fn written(&self, count: usize) {
        self.queue().written += count as u64;
        self.changed.notify_waiters();
    }

    /// Nothing more will be written.
    fn give_up(&self, failure: RunError) {
        let given_up = {
            let mut queue = self.queue();
            queue.unmade.clear();
            (queue.is_served, queue.written, queue.failure) = (false, queue.came, Some(failure));
            std::mem::take(&mut queue.waiting)
        };
        // Whoever waits for one of them is told by its end.
        drop(given_up);
        self.changed.notify_waiters();
    }
}

/// An outbox into which nothing comes.
#[derive(Debug)]
pub(crate) struct Closed<'a>(&'a Outbox);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.queue().turns -= 1;
        self.0.changed.notify_waiters();
    }
}

impl Run {
    /// Records a step that ended well, before anything else that this run writes from then on. It counts at once; what is
    /// to be done when its entry is made is up to what `later` gives, which is asked just before it counts. It is written
    /// without a sync.
    ///
    /// Only for steps that may be done again if this process dies: nobody was told of them yet, and they touched nothing
    /// outside. Waits only if the store is far behind.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record), for a step that was to be written before it too.
    ///
    /// # Panics
    ///
    /// Outside a runtime of tokio, which writes it.
    pub async fn record_later(
        &self,
        done: StepDone,
        later: impl FnOnce(&mut StepDone) -> Result<Box<dyn Later>, RunError>,
    ) -> Result<(), RunError> {
        let core = &self.scope.core;
        core.outbox.has_room().await?;
        core.check_ready()?;
        let mut done = done;
        let mut later = later(&mut done)?;
        // Lines that were written meanwhile go with another entry: this one can't tell whether one has them already.
        let step = Arc::new(core.record_of(done)?);
        let body = step.encode(&*core.context.store)?;
        core.accept(&step);
        core.ran(&step.path);
        later.queued();
        if core.outbox.push(Waiting { ended: EndedStep { step, body }, later }) {
            drop(Handle::current().spawn(serve(Arc::clone(core))));
        }
        Ok(())
    }

    /// Waits until everything is in the log that was [recorded later](Self::record_later) before.
    ///
    /// # Errors
    ///
    /// Why something couldn't be written.
    pub async fn catch_up(&self) -> Result<(), RunError> {
        self.core().outbox.caught_up().await?;
        // Somebody else may have heard of it.
        self.check_written()
    }

    /// That everything could be written so far that was [recorded later](Self::record_later).
    ///
    /// # Errors
    ///
    /// Why something couldn't.
    pub fn check_written(&self) -> Result<(), RunError> {
        let core = self.core();
        core.outbox.check()?;
        match core.known().broken.clone() {
            Some(cause) => Err(RunError::Broken { run: core.id.clone(), cause }),
            None => Ok(()),
        }
    }
}

/// Whoever serves the outbox. If he ends before he is done, nothing more is written, and nobody waits for it.
struct Server {
    core: Weak<Core>,
    is_done: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade().filter(|_| !self.is_done) else { return };
        if !core.outbox.leave() {
            let cause = "whoever wrote its steps ended before he was done".to_owned();
            give_up(&core, RunError::Broken { run: core.id.clone(), cause });
        }
    }
}

fn give_up(core: &Core, error: RunError) {
    core.known().broken.get_or_insert_with(|| error.to_string());
    core.outbox.give_up(error);
}

/// Writes what waits, until nothing does.
async fn serve(core: Arc<Core>) {
    let mut server = Server { core: Arc::downgrade(&core), is_done: false };
    drop(core);
    let mut looks = 0;
    // Where nothing is to be written, the run may be let go of.
    while let Some(core) = server.core.upgrade() {
        // The next one is most likely about to come, and then nobody has to be woken.
        if looks < LOOKS && core.outbox.queue().waiting.is_empty() {
            looks += 1;
            drop(core);
            tokio::task::yield_now().await;
            continue;
        }
        looks = 0;
        let turn = core.next_turn().await;
        let mut steps = core.outbox.take();
        if steps.is_empty() {
            server.is_done = true;
            return;
        }
        let written = match turn {
            Ok(turn) => write(&core, turn, &mut steps).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            give_up(&core, error);
            server.is_done = true;
            // Only now: whoever waits for one of them hears why it isn't there.
            drop(steps);
            return;
        }
    }
}

async fn write(core: &Core, mut turn: Turn<'_>, steps: &mut VecDeque<Waiting>) -> Result<(), RunError> {
    let chains = core.context.store.capabilities().chain;
    let mut races = 0;
    while !steps.is_empty() {
        if chains && steps.len() > 1 {
            turn.begin_chain();
        }
        let (mut seqs, mut failed) = (Vec::with_capacity(steps.len()), Ok(()));
        for waiting in &mut *steps {
            failed = waiting.later.write(&mut turn, &waiting.ended).await;
            if failed.is_err() {
                break;
            }
            seqs.push(turn.last());
            if turn.is_full() {
                break;
            }
        }
        let ended = turn.end_chain().await;
        let count = ended.appended.unwrap_or(seqs.len());
        for (waiting, seq) in steps.drain(..count).zip(seqs) {
            waiting.later.written(seq);
        }
        core.outbox.written(count);
        match ended.error {
            None => failed?,
            Some(error @ StoreError::Conflict { .. }) if races < RACES => {
                races += 1;
                turn.meet(error).await?;
                core.outbox.unmake(steps);
                steps.iter_mut().for_each(|waiting| waiting.later.again());
            }
            Some(error) => return Err(error.into()),
        }
    }
    Ok(())
}
