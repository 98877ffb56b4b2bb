//! JavaScript, by QuickJS in this process.
//!
//! Every call has an engine of its own that nothing has run in before and nothing runs in afterwards. To make one and to
//! clear it away takes longer than most scripts, so some are made ahead, and cleared away, on another thread.
//!
//! Most scripts take less time than to wake a thread for them. So a small one is begun where it is called, and is only
//! moved to a thread, from its beginning, when it has not come to its end within a slice of time. That can't be seen: a script
//! touches nothing but its own engine.

mod builtins;
mod convert;
mod engine;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use piton_types::{Random, Timestamp, Value, excerpt};
use rquickjs::context::EvalOptions;
use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, Function, Value as JsValue};

use self::engine::Engine;
use crate::{CodeError, CodeLimits, MAX_MESSAGE};

/// How long a script may hold up its caller.
const SLICE: Duration = Duration::from_millis(1);

/// How large a script and its inputs together may be to be begun where they are, in bytes: what takes time in proportion
/// to its size is better done beside.
const SMALL: usize = 64 << 10;

/// What code may know of the world.
#[derive(Clone)]
pub struct Surroundings {
    /// What time it is.
    pub now: Timestamp,
    /// Where random numbers come from.
    pub random: Arc<dyn Random>,
    /// Ends the code when it is set: the caller has stopped waiting for it.
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
        run(&Engine::take()?, code, inputs, limits, surroundings)
    }

    /// The same for a caller that mustn't be held up.
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
        if code.len() + size(&inputs) <= SMALL {
            let slice = CodeLimits { time: limits.time.min(SLICE), ..limits };
            let engine = Engine::take()?;
            let result = run(&engine, &code, &inputs, &slice, &surroundings);
            engine.end();
            match result {
                Err(CodeError::TimedOut { .. }) if slice.time < limits.time => {}
                result => return result,
            }
        }
        let (answer, answered) = tokio::sync::oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let engine = match Engine::take() {
                Ok(engine) => engine,
                Err(error) => return drop(answer.send(Err(error))),
            };
            // The receiver is gone if the caller dropped the future.
            drop(answer.send(run(&engine, &code, &inputs, &limits, &surroundings)));
            engine.end_here();
        });
        answered.await.unwrap_or_else(|_| Err(CodeError::Engine("the code's thread failed".to_owned())))
    }
}

/// How much there is to hand over, roughly.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => 8 * bytes.len(),
        Value::List(items) => items.iter().map(size).sum::<usize>() + 8,
        Value::Map(fields) => fields.iter().map(|(key, value)| key.len() + size(value)).sum::<usize>() + 8,
        _ => 8,
    }
}

/// Runs the code in an engine in which nothing has run.
fn run(
    engine: &Engine,
    code: &str,
    inputs: &Value,
    limits: &CodeLimits,
    surroundings: &Surroundings,
) -> Result<Value, CodeError> {
    let started = Instant::now();
    let (time, stop) = (limits.time, surroundings.stop.clone());
    engine.limit(limits.memory, move || started.elapsed() > time || stop.load(Ordering::Relaxed));
    call(engine.scope(), code, inputs, limits, surroundings, started)
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
            let mut found: JsValue<'_> = ctx.globals().get("main").catch(&ctx)?;
            if !found.is_function() {
                // A `const main` is in the scope of the script and not in its global object.
                found = ctx.eval("typeof main === 'function' ? main : undefined").catch(&ctx)?;
            }
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
    let message = excerpt(&message, MAX_MESSAGE).into_owned();
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
