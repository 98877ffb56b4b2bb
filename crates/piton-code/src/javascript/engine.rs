//! Engines, each for one script. A few in which nothing has run are kept ready, so that a script needn't wait until its
//! own is made. None is ever used twice.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rquickjs::{Context, Runtime};

use crate::CodeError;

/// Less than the stack of any thread that we are called on.
const MAX_STACK: usize = 512 << 10;

/// How many are made at a time, when none is ready any more. There are none before the first script has run.
const SPARE: usize = 4;

static READY: Mutex<Vec<Engine>> = Mutex::new(Vec::new());

/// Held by whoever makes others, so that many scripts at once don't all want to.
static MAKING: Mutex<()> = Mutex::new(());

/// A runtime with its one global scope.
pub(super) struct Engine {
    scope: Context,
    runtime: Runtime,
}

impl Engine {
    /// One in which nothing has run; and whether it was the last, so that [others](Self::make_others) should be made
    /// beside its script.
    pub(super) fn take() -> Result<(Self, bool), CodeError> {
        let (found, is_last) = {
            let mut ready = ready();
            (ready.pop(), ready.is_empty())
        };
        Ok((found.map_or_else(Self::new, Ok)?, is_last))
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

    /// Makes some for the scripts that come next.
    pub(super) fn make_others() {
        let Ok(_making) = MAKING.try_lock() else { return };
        while ready().len() < SPARE {
            // What fails here fails again for the next script, which says so.
            let Ok(engine) = Self::new() else { return };
            ready().push(engine);
        }
    }
}

fn ready() -> MutexGuard<'static, Vec<Engine>> {
    READY.lock().unwrap_or_else(PoisonError::into_inner)
}
