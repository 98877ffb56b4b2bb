//! JavaScript, by QuickJS in this process.
//!
//! Every call has a fresh global scope, so that nothing of one call is seen by the next. The runtime below
//! it, which has no state that code can see, is kept for the next call after one that ended well; after an
//! interruption or a lack of memory it is thrown away. To make a scope and to clear one away takes longer than most
//! scripts, so both are done once the result has been handed over.

mod builtins;
mod convert;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use piton_types::{Random, Timestamp, Value};
use rquickjs::context::EvalOptions;
use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, Function, Runtime, Value as JsValue};

use crate::{CodeError, CodeLimits};

/// Less than the stack of any thread that we are called on.
const MAX_STACK: usize = 512 << 10;

/// What code may know of the world.
#[derive(Clone)]
pub struct Surroundings {
    /// What time it is.
    pub now: Timestamp,
    /// Where random numbers come from.
    pub random: Arc<dyn Random>,
    /// Ends the code when it is set: nobody waits for it any more.
    pub stop: Arc<AtomicBool>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct JavaScript;

/// A runtime with a global scope that nothing has run in.
struct Engine {
    context: Context,
    runtime: Runtime,
}

thread_local! {
    /// The engine of this thread, while nobody uses it. Engines can't move between threads.
    static IDLE: Cell<Option<Engine>> = const { Cell::new(None) };
}

impl JavaScript {
    /// Calls the code's `main` with the inputs as its one argument, and gives what it returns, or what it
    /// promises and then keeps.
    ///
    /// Takes as long as the code does: async callers use [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// What the code or its limits lead to.
    pub fn run(
        self,
        code: &str,
        inputs: &Value,
        limits: &CodeLimits,
        surroundings: &Surroundings,
    ) -> Result<Value, CodeError> {
        let mut result = None;
        run_and(code, inputs, limits, surroundings, |made| result = Some(made));
        result.unwrap_or_else(|| Err(CodeError::Engine("it gave nothing".to_owned())))
    }

    /// The same on a thread that may block, with what the code made as soon as it is there.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub async fn start(
        self,
        code: Arc<str>,
        inputs: Value,
        limits: CodeLimits,
        surroundings: Surroundings,
    ) -> Result<Value, CodeError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        tokio::task::spawn_blocking(move || {
            // Nobody listens any more if the future was dropped.
            run_and(&code, &inputs, &limits, &surroundings, |result| drop(answer.send(result)));
        });
        answered.await.unwrap_or_else(|_| Err(CodeError::Engine("the code's thread failed".to_owned())))
    }
}

/// Runs the code, hands the result over, and then gets the engine ready for the next call.
fn run_and(
    code: &str,
    inputs: &Value,
    limits: &CodeLimits,
    surroundings: &Surroundings,
    deliver: impl FnOnce(Result<Value, CodeError>),
) {
    let engine = match IDLE.take().map_or_else(Engine::new, Ok) {
        Ok(engine) => engine,
        Err(error) => return deliver(Err(error)),
    };
    let Engine { runtime, context } = &engine;
    let started = Instant::now();
    let time = limits.time;
    runtime.set_memory_limit(usize::try_from(limits.memory).unwrap_or(usize::MAX));
    let stop = surroundings.stop.clone();
    let interrupt = move || started.elapsed() > time || stop.load(Ordering::Relaxed);
    runtime.set_interrupt_handler(Some(Box::new(interrupt)));
    let result = call(context, code, inputs, limits, surroundings, started);
    let healthy =
        !matches!(result, Err(CodeError::TimedOut { .. } | CodeError::OutOfMemory { .. } | CodeError::Engine(_)));
    deliver(result);
    if healthy {
        IDLE.set(engine.renewed());
    }
}

impl Engine {
    fn new() -> Result<Self, CodeError> {
        let failed = |error: rquickjs::Error| CodeError::Engine(error.to_string());
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_max_stack_size(MAX_STACK);
        let context = Context::full(&runtime).map_err(failed)?;
        Ok(Self { context, runtime })
    }

    /// With another scope. What the code left behind is in cycles with its own, which the garbage collector finds.
    fn renewed(self) -> Option<Self> {
        let Self { context, runtime } = self;
        drop(context);
        runtime.set_interrupt_handler(None);
        runtime.set_memory_limit(usize::MAX);
        runtime.run_gc();
        Some(Self { context: Context::full(&runtime).ok()?, runtime })
    }
}

fn call(
    context: &Context,
    code: &str,
    inputs: &Value,
    limits: &CodeLimits,
    surroundings: &Surroundings,
    started: Instant,
) -> Result<Value, CodeError> {
    context.with(|ctx| {
        let work = |main: &mut bool| -> Result<Result<Value, CodeError>, CaughtError<'_>> {
            builtins::install(&ctx, code, surroundings).catch(&ctx)?;
            let mut options = EvalOptions::default();
            options.strict = false;
            ctx.eval_with_options::<(), _>(code, options).catch(&ctx)?;
            // A `const main` is in the scope of the script and not in its global object.
            let found: JsValue<'_> = ctx.eval("typeof main === 'function' ? main : undefined").catch(&ctx)?;
            let Some(function) = found.into_function() else { return Ok(Err(CodeError::NoMain)) };
            *main = true;
            let given = convert::to_js(&ctx, inputs).catch(&ctx)?;
            let returned: JsValue<'_> = function.call((given,)).catch(&ctx)?;
            let returned = match returned.as_promise() {
                Some(promise) => promise.finish::<JsValue<'_>>().catch(&ctx)?,
                None => returned,
            };
            let value = match convert::from_js(&ctx, returned, limits.output).catch(&ctx)? {
                Ok(value) => value,
                Err(error) => return Ok(Err(error)),
            };
            let streamed = builtins::finish_streams(&ctx, code).catch(&ctx)?;
            let Some(streamed) = streamed else { return Ok(Ok(value)) };
            let output = convert::from_js(&ctx, streamed, limits.output).catch(&ctx)?;
            Ok(output.map(|output| with_output(value, output)))
        };
        let mut in_main = false;
        match work(&mut in_main) {
            Ok(result) => result,
            Err(error) => Err(explain(&error, limits, started.elapsed(), in_main)),
        }
    })
}

/// What main returned, with what its callbacks made of a stream as `output`.
fn with_output(value: Value, output: Value) -> Value {
    let mut fields = match value {
        Value::Map(fields) => fields,
        _ => std::collections::BTreeMap::new(),
    };
    fields.insert("output".to_owned(), output);
    Value::Map(fields)
}

fn explain(error: &CaughtError<'_>, limits: &CodeLimits, took: Duration, in_main: bool) -> CodeError {
    let message = match error {
        CaughtError::Exception(exception) => {
            let message = exception.message().unwrap_or_default();
            let name: Option<String> = exception.as_object().get("name").ok();
            match name.filter(|name| !name.is_empty()) {
                Some(name) => format!("{name}: {message}"),
                None => message,
            }
        }
        CaughtError::Value(value) => {
            let text = value.clone().into_string().and_then(|text| text.to_string().ok());
            text.unwrap_or_else(|| format!("it threw {}", value.type_name()))
        }
        // An interruption breaks the chain of a promise, which then can't be told from one without an end.
        CaughtError::Error(rquickjs::Error::WouldBlock) if took > limits.time => {
            return CodeError::TimedOut { after: limits.time };
        }
        CaughtError::Error(rquickjs::Error::WouldBlock) => "what main promised never comes".to_owned(),
        CaughtError::Error(error) => error.to_string(),
    };
    if message.contains("out of memory") {
        CodeError::OutOfMemory { limit: limits.memory }
    } else if took > limits.time && message.contains("interrupted") {
        CodeError::TimedOut { after: limits.time }
    } else if !in_main && message.starts_with("SyntaxError") {
        CodeError::Syntax(message)
    } else {
        CodeError::Thrown(message)
    }
}

/// A native function as a global, or as a field of one.
fn function<'js, P>(
    ctx: &Ctx<'js>,
    native: impl rquickjs::function::IntoJsFunc<'js, P> + 'js,
) -> rquickjs::Result<Function<'js>> {
    Function::new(ctx.clone(), native)
}
