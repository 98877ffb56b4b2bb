//! A tool of an agent between two checkpoints: when it fails for good, what it did to the files is taken back, and what
//! others wrote meanwhile stays.
//!
//! ```console
//! $ cargo run -p piton-examples --bin undo_files -- scratch
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;

use piton::files::{Session, ToolCall, ToolFailure, ToolOutcome, Workspace, WorkspaceOptions};
use piton::run::Value;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let root = std::path::absolute(std::env::args().nth(1).unwrap_or_else(|| "scratch".to_owned()))?;
    let folder = root.join("project");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("notes.txt"), "first\nsecond\n")?;
    std::fs::write(folder.join("keep.txt"), "mine\n")?;

    // The store is outside the folder that it guards.
    let context = piton::open(&format!("sqlite:{}", root.join("store.db").display())).await?;
    let options = WorkspaceOptions { state: root.join("state"), ..WorkspaceOptions::default() };
    let workspace = Workspace::open(&context, &folder, options)?;
    let mut session = Session::begin(&workspace, "clean-up").await?;

    let call = ToolCall { step: "tool/1".parse()?, tool: "shell".to_owned(), input: Value::from("rm notes.txt") };
    let outcome = session
        .execute_with_checkpoint(call, async {
            let failure = |error: std::io::Error| ToolFailure { message: error.to_string(), recoverable: false };
            std::fs::remove_file(folder.join("notes.txt")).map_err(failure)?;
            std::fs::write(folder.join("left-over.txt"), "rubbish\n").map_err(failure)?;
            Err::<((), Value), _>(ToolFailure { message: "the disk caught fire".to_owned(), recoverable: false })
        })
        .await?;
    match outcome {
        ToolOutcome::RolledBack { failure, restored } => {
            println!("{}: {} files are as they were", failure.message, restored.files_restored);
        }
        other => println!("{other:?}"),
    }
    let end = session.end(Ok(Value::Null)).await?;
    println!("the session changed nothing: {}", end.before.tree == end.after.tree);
    println!("notes.txt: {:?}", std::fs::read_to_string(folder.join("notes.txt"))?);
    Ok(())
}
