//! `piton run`: starts a document, or goes on with the run of the given id.

use std::collections::BTreeMap;
use std::path::Path;

use piton::SystemRandom;
use piton::{Inputs, StartFlow, run_durable};
use piton_types::{RunId, Value, from_json};

use crate::arguments::Run;
use crate::commands::resume::{along, wait_for};
use crate::drive::{Along, drive};
use crate::failure::{Exit, Failure};
use crate::file_arguments::Capture;
use crate::files;
use crate::outside::services;
use crate::session::Session;
use crate::texts::{document_format, read_text};

pub(crate) async fn execute(session: &Session, arguments: Run) -> Result<Exit, Failure> {
    let document = read_text(&arguments.document)?;
    let name = arguments.document.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let format = document_format(&arguments.document)?;
    let inputs = inputs(arguments.inputs.as_deref(), arguments.input)?;
    // Chosen here and not by the runtime: whatever happens, we know what to resume.
    let run = arguments.id.unwrap_or_else(|| RunId::generate(session.now(), &SystemRandom));
    let store = session.store_or_create().await?;
    if arguments.wait.is_some() && store.head(&run).await?.is_some() {
        wait_for(session, &store, &run, arguments.wait).await?;
    }
    let id = run.clone();
    let services = services(session, arguments.config.as_deref())?;
    let along = match arguments.files {
        true => {
            Some(Along { workspace: files::open(session, &store, Capture::default()).await?, drift: arguments.drift })
        }
        // A run that goes on keeps what it was begun with.
        false => along(session, &store, &run, arguments.drift).await?,
    };
    drive(session, store, &run, None, services, along, |context, options| async move {
        let start = StartFlow {
            document,
            format,
            inputs,
            id: Some(id),
            name,
            folder: session.surroundings.folder.to_str().map(str::to_owned),
            options,
        };
        run_durable(&context, start).await
    })
    .await
}

/// What `--inputs` and `-i` give together; of the same name the last one stays.
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
    inputs.extend(given.into_iter().map(|(name, text)| (name, Value::from(text))));
    Ok(inputs)
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

        for wrong in ["[1]", "{", "\"x\""] {
            std::fs::write(&file, wrong).unwrap();
            assert!(inputs(Some(&file), Vec::new()).is_err(), "{wrong}");
        }
    }
}
