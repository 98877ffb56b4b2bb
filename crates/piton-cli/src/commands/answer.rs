//! `piton answer`: replies to a question that a run waits for. The answer is checked against what the question asks
//! for, and in the log when this returns, whether or not somebody drives the run.

use std::io::IsTerminal as _;
use std::sync::Arc;

use piton::{
    Context, Liveness, OpenQuestion, answer_question, choose, liveness, open_questions, this_process, yes_or_no,
};
use piton_types::{RunId, RunKind, Value, from_json};
use serde_json::json;

use crate::arguments::files::DriftWatch;
use crate::arguments::{Answer, ChangeFlags, Resume};
use crate::commands::resume;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::questions::lines;
use crate::session::Session;
use crate::terminal::answer as say;
use piton_app::references::run_id;

pub(crate) async fn execute(session: &Session, arguments: Answer) -> Result<Exit, Failure> {
    let nothing = || Failure::usage("nothing was answered").hint("say it with `--set NAME=VALUE` or `--value VALUE`.");
    if arguments.value.is_none() && arguments.set.is_empty() && !std::io::stdin().is_terminal() {
        return Err(nothing());
    }
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    let context = Context::system(Arc::clone(&store));
    let by = arguments.by.clone().unwrap_or_else(|| session.user());
    let open = open_questions(&context, &run).await?;
    let question = choose(&run, open, arguments.node.as_deref())?;
    let value = match (&arguments.value, &arguments.set[..]) {
        (Some(value), _) => value.clone(),
        (None, []) => ask(&question).ok_or_else(nothing)?,
        (None, set) => given(&question, set),
    };
    let question = answer_question(&context, &run, Some(question.step.as_str()), &value, &by).await?;
    let still_open = open_questions(&context, &run).await?.len();
    let summary = store.summary(&run).await?;
    let (kind, status) = (summary.as_ref().map(|run| run.kind), summary.map(|run| run.status));
    store.close().await?;
    let resumes = arguments.resume && kind == Some(RunKind::Workflow);
    let id = run.as_str();
    let told = json!({
        "id": id, "run": id, "step": question.as_str(), "status": status, "by": by, "open": still_open,
    });
    if !session.output.is_json() {
        session.output.note(&format!("question {} of run {run} is answered", clean(question.as_str())));
    } else if !resumes {
        session.output.object(&told)?;
    }
    if resumes {
        let (config, wait, document) = (arguments.config, None, None);
        let arguments = Resume {
            run,
            wait,
            config,
            explain: false,
            document,
            force: false,
            changes: ChangeFlags::default(),
            drift: DriftWatch::default(),
        };
        return match resume::execute(session, &arguments).await {
            // Whoever drives it has the answer.
            Err(_) if is_driven(session, &arguments.run).await? => {
                let run = &arguments.run;
                session.output.note(&format!("run {run} is driven by another process, which goes on with it"));
                if session.output.is_json() {
                    session.output.object(&told)?;
                }
                Ok(Exit::Done)
            }
            other => other,
        };
    }
    if still_open > 0 {
        session.output.note(&format!("it waits for {still_open} more: `piton answer {run}`"));
    } else if kind == Some(RunKind::Workflow) {
        session.output.note(&format!("`piton resume {run}` goes on, unless somebody drives it"));
    }
    Ok(Exit::Done)
}

/// Whether another process drives a run, as far as is known.
async fn is_driven(session: &Session, run: &RunId) -> Result<bool, Failure> {
    let store = session.store().await?;
    let lease = store.lease(run).await?;
    store.close().await?;
    let me = this_process();
    Ok(lease.is_some_and(|lease| lease.holder != me && liveness(&lease.holder, &me) != Liveness::Dead))
}

/// What was given on the command line. Where the question says what it wants, text stays text; elsewhere what is
/// JSON is taken as such.
fn given(question: &OpenQuestion, set: &[(String, String)]) -> Value {
    let is_field = |name: &str| question.form.iter().flat_map(|form| &form.fields).any(|field| field.name == name);
    Value::map(set.iter().map(|(name, text)| {
        let value = if is_field(name) { text.as_str().into() } else { json_or_text(text) };
        (name.as_str(), value)
    }))
}

fn json_or_text(text: &str) -> Value {
    from_json(text.as_bytes()).unwrap_or_else(|_| Value::from(text))
}

/// Asks whoever sits at the terminal, field by field, until the answer is what is wanted; nobody if there is none.
fn ask(question: &OpenQuestion) -> Option<Value> {
    let mut about = format!("{}\n", clean(&question.prompt));
    lines(question).iter().for_each(|line| about.push_str(&format!("  {line}\n")));
    loop {
        let mut answer = Vec::new();
        let form = question.form.as_ref();
        if form.is_none_or(|form| form.approval) {
            let said = yes_or_no(&say(&format!("{about}approved? [y/n] "))?);
            about.clear();
            let Some(approved) = said else { continue };
            answer.push(("approved".to_owned(), Value::Bool(approved)));
        }
        for field in form.into_iter().flat_map(|form| &form.fields) {
            let said = say(&format!("{about}{}: ", clean(&field.name)))?;
            about.clear();
            if !said.is_empty() {
                answer.push((field.name.clone(), said.into()));
            }
        }
        match question.check(&Value::map(answer.clone())) {
            Ok(_) => return Some(Value::map(answer)),
            Err(wrong) => about = format!("{}\n", clean(&wrong)),
        }
    }
}
