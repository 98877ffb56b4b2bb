//! `piton run`: starts a document, or goes on with the run of the given id.

use std::collections::BTreeMap;
use std::path::Path;

use piton::SystemRandom;
use piton::{Bundle, FlowError, FlowOptions, Inputs, ResumePolicy, StartFlow, file_with, run_durable};
use piton_types::{RunId, Value, from_json};

use crate::arguments::Run;
use crate::commands::resume::{along, wait_for};
use crate::drive::{Along, drive};
use crate::failure::{Exit, Failure};
use crate::session::Session;
use piton_app::documents;
use piton_app::documents::outside::services;
use piton_app::documents::texts::{read_bytes, read_text};
use piton_app::files;
use piton_app::files::Capture;

pub(crate) async fn execute(session: &Session, arguments: Run) -> Result<Exit, Failure> {
    let bundle = documents::read(&arguments.document)?.map_err(FlowError::Document)?;
    if !bundle.files.is_empty() {
        // What is wrong is said with the lines of the document, and not with those of what is recorded.
        bundle.document().and_then(|document| document.validate()).map_err(FlowError::Document)?;
    }
    let Bundle { text, format, .. } = bundle;
    let name = arguments.document.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let inputs = inputs(arguments.inputs.as_deref(), arguments.input)?;
    // Chosen here and not by the runtime: whatever happens, we know what to resume.
    let run = arguments.id.unwrap_or_else(|| RunId::generate(session.now(), &SystemRandom));
    let store = session.store_or_create().await?;
    if arguments.wait.is_some() && store.head(&run).await?.is_some() {
        wait_for(session, &store, &run, arguments.wait).await?;
    }
    let id = run.clone();
    let services = services(session, arguments.config.as_deref())?;
    let policy = if arguments.force { ResumePolicy::Force } else { ResumePolicy::Normal };
    let along = match arguments.files {
        true => {
            Some(Along { workspace: files::open(session, &store, Capture::default()).await?, drift: arguments.drift })
        }
        // A run that goes on keeps what it was begun with.
        false => along(session, &store, &run, arguments.drift).await?,
    };
    drive(session, store, &run, None, services, along, |context, options| async move {
        let start = StartFlow {
            document: text,
            format,
            inputs,
            id: Some(id),
            name,
            folder: session.surroundings.folder.to_str().map(str::to_owned),
            options: FlowOptions { policy, ..options },
        };
        run_durable(&context, start).await
    })
    .await
}

/// What `--inputs` and `-i` give together; of the same name the last one stays, but files of one name are a list.
fn inputs(file: Option<&Path>, given: Vec<(String, String)>) -> Result<Inputs, Failure> {
    let mut inputs = match file {
        None => BTreeMap::new(),
        Some(path) => {
            let shown = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
            let text = read_text(path)?;
            let value = from_json(text.as_bytes())
                .map_err(|error| Failure::fixable(format!("{shown} is not JSON")).because(&error))?;
            match value {
                Value::Map(inputs) => inputs,
                other => {
                    return Err(Failure::fixable(format!("{shown} should be a JSON object, not {}", other.kind())));
                }
            }
        }
    };
    let mut files: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, text) in given {
        match text.strip_prefix('@') {
            // A text that begins with it has it twice.
            Some(rest) if !rest.starts_with('@') => files.entry(name).or_default().push(loaded(Path::new(rest))?),
            rest => drop(inputs.insert(name, Value::from(rest.unwrap_or(&text)))),
        }
    }
    for (name, mut several) in files {
        let value = if several.len() == 1 { several.remove(0) } else { Value::List(several) };
        inputs.insert(name, value);
    }
    Ok(inputs)
}

/// A file with its content: the run needs it no more.
fn loaded(path: &Path) -> Result<Value, Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(file_with(&name, read_bytes(path)?))
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
        assert_eq!(both["a"], Value::from("y"));
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
