//! Engines, each for one script. A few in which nothing has run are kept ready, so that a script needn't wait until its
//! own is made. None is ever used twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rquickjs::{Context, Runtime};

use crate::CodeError;

/// Less than the stack of any thread that we are called on.
const MAX_STACK: usize = 512 << 10;

/// How many are kept ready. There are none before the first script has run.
const SPARE: usize = 4;

static READY: Mutex<Vec<Engine>> = Mutex::new(Vec::new());

/// Whether a thread makes others at present.
static MAKING: AtomicBool = AtomicBool::new(false);

/// A runtime with its one global scope.
pub(super) struct Engine {
    scope: Context,
    runtime: Runtime,
}

impl Engine {
    /// One in which nothing has run.
    pub(super) fn take() -> Result<Self, CodeError> {
        let found = ready().pop();
        found.map_or_else(Self::new, Ok)
    }

    /// Clears it away and makes others for the scripts that come next. That is left to a thread, so that the caller doesn't
    /// wait for it, unless one is at it already: where many scripts run in a row, both have their part then.
    pub(super) fn end(self) {
        if let Some(making) = Making::begin() {
            tokio::task::spawn_blocking(move || {
                drop(self);
                making.fill();
            });
        }
    }

    /// The same for a caller that has a thread of its own.
    pub(super) fn end_here(self) {
        drop(self);
        if let Some(making) = Making::begin() {
            making.fill();
        }
    }

    fn new() -> Result<Self, CodeError> {
        let failed = |error: rquickjs::Error| CodeError::Engine(error.to_string());
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_max_stack_size(MAX_STACK);
        let scope = Context::full(&runtime).map_err(failed)?;
        Ok(Self { scope, runtime })
    }

    pub(super) const fn scope(&self) -> &Context {
        &self.scope
    }

    /// Bounds what runs in it from now on: it gets no more memory than this many bytes, and ends when it should.
    pub(super) fn limit(&self, memory: u64, is_over: impl Fn() -> bool + Send + 'static) {
        self.runtime.set_memory_limit(usize::try_from(memory).unwrap_or(usize::MAX));
        self.runtime.set_interrupt_handler(Some(Box::new(is_over)));
    }
}

/// The right to make others, which one thread has at a time.
struct Making;

impl Making {
    fn begin() -> Option<Self> {
        (!MAKING.swap(true, Ordering::AcqRel)).then_some(Self)
    }

    fn fill(self) {
        while ready().len() < SPARE {
            // What fails here fails again for the next script, which says so.
            let Ok(engine) = Engine::new() else { return };
            ready().push(engine);
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKING.store(false, Ordering::Release);
    }
}

fn ready() -> MutexGuard<'static, Vec<Engine>> {
    READY.lock().unwrap_or_else(PoisonError::into_inner)
}
