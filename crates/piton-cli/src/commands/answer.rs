//! `piton answer`: replies to a question that a run waits for.

use std::io::IsTerminal as _;

use piton_app::runs::answer::{Asked, is_driven};
use piton_app::runs::resume::ResumeRun;
use piton_app::views::run::QuestionView;
use piton_flow::{OpenQuestion, yes_or_no};
use piton_types::{RunKind, Value};

use crate::arguments::Answer;
use crate::commands::resume;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::questions::lines;
use crate::session::Session;
use crate::terminal::answer as say;

pub(crate) async fn execute(session: &Session, arguments: Answer) -> Result<Exit, Failure> {
    let nothing = || Failure::usage("nothing was answered").hint("say it with `--set NAME=VALUE` or `--value VALUE`.");
    if arguments.value.is_none() && arguments.set.is_empty() && !std::io::stdin().is_terminal() {
        return Err(nothing());
    }
    let asked = Asked::find(session, &arguments.run, arguments.node.as_deref()).await?;
    let value = match (&arguments.value, &arguments.set[..]) {
        (Some(value), _) => value.clone(),
        (None, []) => ask(&asked.question).ok_or_else(nothing)?,
        (None, set) => asked.of_texts(set),
    };
    let by = arguments.by.unwrap_or_else(|| session.user());
    let answered = asked.answer(&value, &by).await?;
    let (output, run) = (&session.output, &answered.run);
    let is_workflow = answered.kind == Some(RunKind::Workflow);
    let resumes = arguments.resume && is_workflow;
    if !output.is_json() {
        output.note(&format!("question {} of run {run} is answered", clean(answered.step.as_str())));
    } else if !resumes {
        output.view(&answered)?;
    }
    if resumes {
        let wanted = ResumeRun { config: arguments.config, ..ResumeRun::of(run.clone()) };
        return match resume::go_on(session, &wanted).await {
            // The process that drives it has the answer.
            Err(_) if is_driven(session, run).await? => {
                output.note(&format!("run {run} is driven by another process, which goes on with it"));
                if output.is_json() {
                    output.view(&answered)?;
                }
                Ok(Exit::Done)
            }
            other => other,
        };
    }
    if answered.open > 0 {
        output.note(&format!("it waits for {} more: `piton answer {run}`", answered.open));
    } else if is_workflow {
        output.note(&format!("`piton resume {run}` goes on, unless another process drives it"));
    }
    Ok(Exit::Done)
}

/// Asks a person at the terminal, field by field, until the answer is what is wanted; `None` if there is no person.
fn ask(question: &OpenQuestion) -> Option<Value> {
    let mut about = format!("{}\n", clean(&question.prompt));
    lines(&QuestionView::from(question)).iter().for_each(|line| about.push_str(&format!("  {line}\n")));
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
