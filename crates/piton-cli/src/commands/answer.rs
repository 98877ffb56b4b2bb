//! `piton answer`: replies to a question that a run waits for.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use piton_app::runs::answer::{Asked, is_driven};
use piton_app::runs::resume::ResumeRun;
use piton_app::views::run::QuestionView;
use piton_flow::{Field, Form, OpenQuestion, yes_or_no};
use piton_types::{RunId, RunKind, Value};

use crate::arguments::Answer;
use crate::commands::resume;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::questions::lines;
use crate::session::Session;
use crate::terminal::{answer as say, has_terminal};

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

/// Asks a person at the terminal, if there is one, for what a run waits for, and goes on with it; until it waits no more,
/// or the person leaves a question to later.
pub(crate) async fn right_away(
    session: &Session,
    mut exit: Exit,
    run: &RunId,
    config: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let output = &session.output;
    while exit == Exit::Waiting && has_terminal() && !output.is_json() && output.is_chatty() {
        let Some(asked) = Asked::first(session, run).await? else { break };
        output.note("answer now, or leave it with Ctrl-D:");
        let Some(value) = ask(&asked.question) else {
            output.note("");
            asked.leave().await?;
            break;
        };
        asked.answer(&value, &session.user()).await?;
        let wanted = ResumeRun { config: config.clone(), ..ResumeRun::of(run.clone()) };
        exit = resume::go_on(session, &wanted).await?;
    }
    Ok(exit)
}

/// Asks a person at the terminal, field by field, each until it is what is wanted: what was right isn't asked again.
/// `None` if there is no person.
fn ask(question: &OpenQuestion) -> Option<Value> {
    let mut about = format!("{}\n", clean(&question.prompt));
    lines(&QuestionView::from(question)).iter().for_each(|line| about.push_str(&format!("  {line}\n")));
    let form = question.form.as_ref();
    let (mut answer, mut fields): (Vec<(String, Value)>, Vec<&Field>) = Default::default();
    fields.extend(form.into_iter().flat_map(|form| &form.fields));
    if form.is_none_or(|form| form.approval) {
        let approved = loop {
            let said = yes_or_no(&say(&format!("{about}approved? [y/n] "))?);
            about.clear();
            if let Some(approved) = said {
                break approved;
            }
        };
        answer.push(("approved".to_owned(), Value::Bool(approved)));
    }
    for field in fields {
        loop {
            let said = say(&format!("{about}{}: ", clean(&field.name)))?;
            about.clear();
            let given: Vec<(String, Value)> =
                if said.is_empty() { Vec::new() } else { vec![(field.name.clone(), said.into())] };
            match alone(field).check(&Value::map(given.clone())) {
                Ok(_) => {
                    answer.extend(given);
                    break;
                }
                Err(wrong) => about = format!("{}\n", clean(&wrong)),
            }
        }
    }
    Some(Value::map(answer))
}

/// A form that asks for one field only.
fn alone(field: &Field) -> Form {
    Form { title: String::new(), approval: false, fields: vec![field.clone()], problem: None }
}
