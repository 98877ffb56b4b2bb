//! Python 3, by the machine's own interpreter in a sandboxed process. The process reads one JSON text and
//! writes one; whatever the code prints goes elsewhere.

use std::path::PathBuf;

use piton_process::{Job, Limits, ProcessError, Sandbox, run};
use piton_types::{Value, from_json, to_json};

use crate::{CodeError, CodeLimits};

/// Runs in the sandbox. A function with one parameter that isn't an input gets them all; else each is an
/// argument.
const BOOTSTRAP: &str = r#"
import sys

def piton():
    import json, os
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    given = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    def short(text):
        text, most = str(text), 16384
        return text if len(text) <= most else "%s… (%d more characters were cut)" % (text[:most], len(text) - most)
    def place(error):
        line, trace = None, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<code>":
                line = trace.tb_lineno
            trace = trace.tb_next
        return " (line %d)" % line if line is not None else ""
    try:
        code = compile(given["code"], "<code>", "exec")
    except (SyntaxError, ValueError) as error:
        said = {"syntax": "%s (line %s)" % (short(getattr(error, "msg", error)), getattr(error, "lineno", "?"))}
    else:
        scope = {"__name__": "__main__", "__builtins__": __builtins__}
        try:
            exec(code, scope)
            main = scope.get("main")
            if not callable(main):
                said = {"no_main": True}
            else:
                inputs = given["inputs"]
                wanted = getattr(getattr(main, "__code__", None), "co_varnames", ())
                wanted = wanted[:getattr(getattr(main, "__code__", None), "co_argcount", 0)]
                if len(wanted) == 1 and wanted[0] not in inputs:
                    result = main(inputs)
                else:
                    result = main(**inputs)
                try:
                    said = {"result": result}
                    json.dumps(said, allow_nan=False)
                except (TypeError, ValueError, RecursionError) as error:
                    said = {"unusable": short(error)}
        except MemoryError:
            said = {"memory": True}
        except SystemExit as error:
            said = {"error": "the code called exit(%s)" % short(error.code)}
        except BaseException as error:
            said = {"error": "%s: %s%s" % (short(type(error).__name__), short(error), place(error))}
    try:
        answer.write(json.dumps(said, allow_nan=False))
        answer.flush()
    except MemoryError:
        answer.write('{"memory": true}')
        answer.flush()

piton()
"#;

/// How much of what a program printed is shown.
const MAX_SAID: usize = 500;

/// The interpreter, and what it is shut into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    /// The interpreter.
    pub program: PathBuf,
    /// The sandbox; without one the code runs with all that we may do ourselves.
    pub sandbox: Option<Sandbox>,
}

impl Default for Python {
    fn default() -> Self {
        Self { program: "/usr/bin/python3".into(), sandbox: Some(Sandbox::for_code()) }
    }
}

impl Python {
    /// Calls the code's `main` with the inputs, a map, and gives what it returns.
    ///
    /// # Errors
    ///
    /// What the code or its limits lead to, and [`CodeError::Process`] where there is no sandbox: it isn't
    /// run then.
    pub async fn run(&self, code: &str, inputs: &Value, limits: &CodeLimits) -> Result<Value, CodeError> {
        let given = Value::map([("code", code.into()), ("inputs", inputs.clone())]);
        let given = to_json(&given).map_err(|error| CodeError::Inputs(error.to_string()))?;
        // -I keeps the environment and the current folder out, -B keeps it from writing beside modules.
        let mut job = Job::new(&self.program).arguments(["-I", "-B", "-c", BOOTSTRAP]);
        job.environment.insert("LANG".into(), "C.UTF-8".into());
        job.clean_environment = true;
        job.input = given.to_string().into_bytes();
        job.limits =
            Limits { time: Some(limits.time), output: limits.output, memory: limits.memory, ..Limits::default() };
        job.sandbox.clone_from(&self.sandbox);
        let ended = run(job).await.map_err(|error| match error {
            ProcessError::TimedOut { after } => CodeError::TimedOut { after },
            ProcessError::TooMuchOutput { limit } => CodeError::TooMuchOutput { limit },
            other => CodeError::Process(other),
        })?;
        let said = from_json(&ended.stdout).ok().filter(|said| said.as_map().is_some());
        let Some(said) = said else {
            let text = String::from_utf8_lossy(&ended.stderr);
            let text = text.trim();
            if text.contains("MemoryError") {
                return Err(CodeError::OutOfMemory { limit: limits.memory });
            }
            let start = text.char_indices().rev().take(MAX_SAID).last().map_or(0, |(start, _)| start);
            let cut = if start == 0 { String::new() } else { format!("({start} bytes before were cut) …") };
            return Err(CodeError::Ended { exit_code: ended.exit_code, said: format!("{cut}{}", &text[start..]) });
        };
        let text = |key: &str| said.field(key).and_then(Value::as_str).map(str::to_owned);
        if let Some(error) = text("error") {
            return Err(CodeError::Thrown(error));
        }
        if let Some(error) = text("syntax") {
            return Err(CodeError::Syntax(error));
        }
        if let Some(error) = text("unusable") {
            return Err(CodeError::Result(error));
        }
        if said.field("no_main").is_some() {
            return Err(CodeError::NoMain);
        }
        if said.field("memory").is_some() {
            return Err(CodeError::OutOfMemory { limit: limits.memory });
        }
        match said {
            Value::Map(mut fields) => Ok(fields.remove("result").unwrap_or_default()),
            _ => Ok(Value::Null),
        }
    }
}
