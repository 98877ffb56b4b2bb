//! A workflow inside a program, on a store of its own making: it asks a person, the process ends, another one answers.
//!
//! ```console
//! $ cargo run -p piton-examples --bin person_in_the_loop -- saved
//! $ cargo run -p piton-examples --bin person_in_the_loop -- saved yes
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
use piton::store::{Bytes, CheckpointError, CheckpointStore, Expected, Saved, async_trait};

const DOCUMENT: &str = "
nodes:
  - {id: start, data: {type: start}}
  - id: review
    data: {type: human-input, title: Review, prompt: Publish it?, variables: [{variable: approved, type: boolean, required: true}]}
  - {id: end, data: {type: end, outputs: [{variable: approved, value_selector: [review, approved]}]}}
edges:
  - {source: start, target: review}
  - {source: review, target: end}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "saved".to_owned()));
    let answer = arguments.next();
    std::fs::create_dir_all(&folder)?;

    let handle = WorkflowRunner::builder(Document::parse(DOCUMENT, Format::Yaml)?)
        .workflow_id("post")
        .checkpoint_store(Arc::new(OneFileEach { folder }))
        .build()
        .run()
        .await?;
    let asked = handle.wait_or_paused().await;
    if let (ExecutionStatus::Paused { prompt, .. }, None) = (&asked, &answer) {
        println!("{prompt} Say yes or no when you start this again.");
        return Ok(());
    }
    if let (ExecutionStatus::Paused { .. }, Some(answer)) = (&asked, answer) {
        let approved = answer == "yes";
        handle.resume_with_input([("approved".to_owned(), approved.into())].into()).await?;
    }
    match handle.wait().await {
        ExecutionStatus::Completed(outputs) => println!("approved: {:?}", outputs["approved"]),
        other => println!("{other:?}"),
    }
    Ok(())
}

/// A store in a few lines: one file for each run. It can't compare versions, so it says so, and its user sees to it
/// that a run has one writer. A real one would also sync before it says that something is saved.
struct OneFileEach {
    folder: PathBuf,
}

impl OneFileEach {
    /// Ids are text of others, so they never become paths as they are.
    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(id.bytes().map(|byte| format!("{byte:02x}")).collect::<String>())
    }
}

fn storage(error: std::io::Error) -> CheckpointError {
    CheckpointError::Storage(error.to_string())
}

#[async_trait]
impl CheckpointStore for OneFileEach {
    async fn save(&self, id: &str, bytes: Bytes, _expected: Expected) -> Result<u64, CheckpointError> {
        let path = self.path(id);
        let beside = path.with_extension("new");
        std::fs::write(&beside, &bytes).and_then(|()| std::fs::rename(&beside, &path)).map_err(storage)?;
        Ok(0)
    }

    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
        match std::fs::read(self.path(id)) {
            Ok(bytes) => Ok(Some(Saved { version: 0, bytes: bytes.into() })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(storage(error)),
        }
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        match std::fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(storage(error)),
            _ => Ok(()),
        }
    }

    fn compares(&self) -> bool {
        false
    }
}
