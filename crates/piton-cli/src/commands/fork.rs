//! `piton fork`: a new run that has done what another one had at a checkpoint, with changes. It isn't driven yet.

use piton_app::runs::fork::{Forked, Forking, fork};
use piton_app::views::value_json;
use piton_app::words::typed;
use piton_types::{RunKind, Value};

use crate::arguments::Fork;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::count;
use crate::view::value_text;

pub(crate) async fn execute(session: &Session, arguments: Fork) -> Result<Exit, Failure> {
    let Fork { reference, set, id, document, only, in_place, config, into, include_ignored } = arguments;
    let wanted = Forking { at: reference, set, id, document, only, in_place, into, include_ignored, config };
    let settings = arguments_of(&wanted.set);
    let forked = fork(session, wanted).await?;
    let output = &session.output;
    if output.is_json() {
        output.view(&forked)?;
    }
    match &forked {
        Forked::Run(new) if !output.is_json() => {
            output.data(new.id.as_str())?;
            let next = match new.kind {
                RunKind::Workflow => format!("`piton resume {}` goes on with it", new.id),
                _ => "the program that started its parent can go on with it".to_owned(),
            };
            output.note(&format!("run {} branched off {}; {next}", new.id, new.parent));
            for used in &new.used {
                let by = used.by.iter().map(|step| clean(step.as_str())).collect::<Vec<_>>().join(", ");
                output.warn(&format!(
                    "{by} had used {} already, and what came of that stays; `piton fork {}{settings}` makes a run that \
                     does that again",
                    clean(&used.name),
                    used.before
                ));
            }
        }
        Forked::Folder(new) if !output.is_json() => {
            let (shown, files, at) = (clean(&new.folder), count(new.files, "file"), &new.parent);
            output.data(&shown)?;
            output.note(&match &new.run {
                Some(run) => {
                    let there = typed(&["-C", &shown]);
                    format!("{files} of {at}; `piton {there} resume {run}` goes on with the run")
                }
                None => format!("{files} of {at}"),
            });
        }
        Forked::Tried(tried) => {
            let step = clean(tried.step.as_str());
            if tried.error.is_none() && !output.is_json() {
                output.data(&value_text(&tried.output))?;
            }
            let copy = match &tried.files {
                Some(files) => format!(", in a copy of the files of {files}"),
                None => String::new(),
            };
            output.note(&format!("step {step} was tried on {}{copy}; nothing was recorded", tried.parent));
            if let Some(error) = &tried.error {
                return Err(Failure::fixable(format!("step {step} failed")).cause(error));
            }
        }
        Forked::Run(_) | Forked::Folder(_) => {}
    }
    Ok(Exit::Done)
}

/// The settings as they are typed.
fn arguments_of(set: &[(String, Value)]) -> String {
    let typed = set.iter().map(|(name, value)| {
        let setting = format!("{name}={}", value_json(value));
        format!(" {}", typed(&["--set", &setting]))
    });
    typed.collect()
}
