//! `piton run`: starts a document, or goes on with the run of the given id.

use std::collections::BTreeMap;
use std::path::Path;

use piton_app::documents::texts::{read_bytes, read_source};
use piton_app::runs::start::{StartRun, prepare};
use piton_flow::{Inputs, file_with};
use piton_types::{Value, from_json};

use crate::arguments::{Run, Start};
use crate::commands::answer::right_away;
use crate::drive::drive;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::terminal::{answer, has_terminal};

pub(crate) async fn execute(session: &Session, arguments: Run) -> Result<Exit, Failure> {
    let mut wanted = StartRun {
        limits: arguments.limits.into(),
        force: arguments.force,
        wait: arguments.wait,
        files: arguments.files,
        drift: arguments.drift.into(),
        ..started(arguments.start)?
    };
    if let Some(chat) = wanted.chat(session).await? {
        chat.opening.iter().for_each(|opening| session.output.note(&clean(opening)));
        chat.suggested.iter().for_each(|question| session.output.note(&format!("- {}", clean(question))));
        if chat.lacks_question && has_terminal() && !session.output.is_json() {
            let question = answer("What do you want to ask? ").filter(|question| !question.trim().is_empty());
            wanted.system.extend(question.map(|question| ("query".to_owned(), question.trim().into())));
        }
    }
    let config = wanted.config.clone();
    let prepared = prepare(session, wanted).await?;
    let run = prepared.run.clone();
    let exit = drive(session, prepared).await?;
    right_away(session, exit, &run, config).await
}

/// What a run is begun with.
pub(super) fn started(arguments: Start) -> Result<StartRun, Failure> {
    let inputs = inputs(arguments.inputs.as_deref(), arguments.input)?;
    let mut system = BTreeMap::new();
    // One that says nothing is none.
    if let Some(question) = arguments.question.or(arguments.query).filter(|question| !question.trim().is_empty()) {
        system.insert("query".to_owned(), question.into());
    }
    if !arguments.file.is_empty() {
        let files: Result<Vec<_>, _> = arguments.file.iter().map(|path| loaded(path)).collect();
        system.insert("files".to_owned(), Value::List(files?));
    }
    let (id, turn, config) = (arguments.id, arguments.turn, arguments.config);
    let labels = arguments.label.into_iter().collect();
    Ok(StartRun { inputs, system, id, turn, config, labels, ..StartRun::of(arguments.document) })
}

/// What `--inputs` and `-i` give together, of which `-i` stays; several of one name are a list.
fn inputs(file: Option<&Path>, given: Vec<(String, String)>) -> Result<Inputs, Failure> {
    let mut inputs = match file {
        None => BTreeMap::new(),
        Some(path) => {
            let shown = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
            let value = from_json(&read(path)?)
                .map_err(|error| Failure::fixable(format!("{shown} is not JSON")).because(&error))?;
            match value {
                Value::Map(inputs) => inputs,
                other => {
                    return Err(Failure::fixable(format!("{shown} should be a JSON object, not {}", other.kind())));
                }
            }
        }
    };
    let mut several: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, text) in given {
        let value = match text.strip_prefix('@') {
            // A text that begins with it has it twice.
            Some(rest) if !rest.starts_with('@') => loaded(Path::new(rest))?,
            rest => Value::from(rest.unwrap_or(&text)),
        };
        several.entry(name).or_default().push(value);
    }
    for (name, mut values) in several {
        let value = if values.len() == 1 { values.remove(0) } else { Value::List(values) };
        inputs.insert(name, value);
    }
    Ok(inputs)
}

/// A file, or stdin for `-`.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    match path == Path::new("-") {
        true => read_source(&mut std::io::stdin().lock(), path),
        false => read_bytes(path),
    }
}

/// A file with its content: the run needs it no more.
fn loaded(path: &Path) -> Result<Value, Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(file_with(&name, read(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_the_command_line_beat_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("inputs.json");
        std::fs::write(&file, r#"{"a": 1, "b": [true]}"#).unwrap();
        let both =
            inputs(Some(&file), vec![("a".to_owned(), "x".to_owned()), ("a".to_owned(), "y".to_owned())]).unwrap();
        assert_eq!(both["a"], Value::from(vec![Value::from("x"), Value::from("y")]));
        assert_eq!(both["b"], Value::from(vec![Value::from(true)]));

        let note = folder.path().join("note.txt");
        std::fs::write(&note, "A note.").unwrap();
        let at = |path: &Path| format!("@{}", path.display());
        let given = [("a", at(&note)), ("b", at(&note)), ("b", at(&note)), ("c", "@@home".to_owned())];
        let files = inputs(None, given.map(|(name, text)| (name.to_owned(), text)).to_vec()).unwrap();
        assert_eq!(files["a"].field("content"), Some(&Value::Bytes(b"A note.".to_vec())));
        assert_eq!(files["a"].field("filename"), Some(&Value::from("note.txt")));
        assert_eq!((files["b"].as_list().map(<[Value]>::len), &files["c"]), (Some(2), &Value::from("@home")));
        assert!(inputs(None, vec![("a".to_owned(), at(&folder.path().join("gone")))]).is_err());

        for wrong in ["[1]", "{", "\"x\""] {
            std::fs::write(&file, wrong).unwrap();
            assert!(inputs(Some(&file), Vec::new()).is_err(), "{wrong}");
        }
    }
}
