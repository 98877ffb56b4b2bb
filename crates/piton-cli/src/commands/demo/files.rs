//! Files: an agent that destroys what it finds, and the way back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::Stage;
use crate::failure::Failure;

/// What the agent does in its second turn. Neither command asks first.
const DESTRUCTION: &str = "git reset --hard --quiet; git clean -fdxq; echo rewritten > new.py";
/// The same where there is no git.
const PLAIN_DESTRUCTION: &str = "rm -rf notes .env todo.md README.md; echo rewritten > new.py";

type Hashes = BTreeMap<PathBuf, blake3::Hash>;

pub(super) async fn show(stage: &mut Stage<'_>) -> Result<(), Failure> {
    stage.title("Files: what an agent did is taken back, what you did stays")?;
    let has_git = prepare(stage).await?;
    let start = hashes(&stage.project(), false)?;

    stage.say("An agent edits a file:")?;
    stage.run(&["guard", "--", "sh", "-c", "sed -i s/hello/goodbye/ src/app.py"]).await?;
    stage.say("You write down a thought meanwhile:\n$ echo 'call Ada' >> todo.md")?;
    stage.write("todo.md", "buy bread\ncall Ada\n")?;
    stage.say("The agent goes on, and tidies up:")?;
    let destruction = if has_git { DESTRUCTION } else { PLAIN_DESTRUCTION };
    stage.run(&["guard", "--", "sh", "-c", destruction]).await?;
    let left = hashes(&stage.project(), false)?;
    let lost = start.keys().filter(|path| !left.contains_key(*path)).count();
    stage.say(&format!("{lost} files are gone, your edits with them. Where are we?"))?;
    stage.run(&["status"]).await?;
    stage.say("Nothing changed since its last checkpoint, so all of it can be taken back:")?;

    let repository = hashes(&stage.project().join(".git"), true)?;
    stage.run(&["undo", "--yes"]).await?;
    stage.run(&["undo", "--yes"]).await?;
    let expected = with_thought(&start);
    let back = hashes(&stage.project(), false)?;
    stage.claim(
        back == expected,
        format!("{} files are as they were, by their hashes, though git had deleted {lost} of them", start.len()),
    );
    stage.claim(
        std::fs::read_to_string(stage.project().join("todo.md")).is_ok_and(|text| text.contains("call Ada")),
        "what you wrote between the agent's turns is still there",
    );
    stage.run(&["redo", "--yes"]).await?;
    let again = hashes(&stage.project(), false)?;
    stage.run(&["undo", "--yes"]).await?;
    stage.claim(
        again != expected && hashes(&stage.project(), false)? == expected,
        "an undo can be taken back, and that too",
    );
    if has_git {
        stage.claim(
            hashes(&stage.project().join(".git"), true)? == repository,
            format!("git's own {} files are byte for byte what they were before the undo", repository.len()),
        );
    }
    Ok(())
}

/// A repository with an edit that isn't committed, notes that git doesn't know and secrets that it ignores. Says
/// whether there is a git to make it with.
async fn prepare(stage: &Stage<'_>) -> Result<bool, Failure> {
    stage.write("src/app.py", "print(\"hello\")\n")?;
    stage.write("README.md", "# A project\n")?;
    stage.write(".gitignore", ".env\n")?;
    let mut has_git = true;
    for arguments in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "first"]] {
        has_git = has_git && git(&stage.project(), arguments).await;
    }
    if !has_git {
        stage.say("(There is no git here; the agent deletes by other means.)")?;
    }
    stage.write("README.md", "# A project\n\nAn edit that isn't committed.\n")?;
    stage.write("notes/idea.txt", "Only this folder has this.\n")?;
    stage.write(".env", "KEY=secret\n")?;
    stage.write("todo.md", "buy bread\n")?;
    stage.say("A project with an edit that isn't committed, notes that git doesn't know and an ignored .env.")?;
    Ok(has_git)
}

/// Runs git with no configuration but this. Says whether it went well.
async fn git(folder: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("git");
    command
        .args(["-c", "user.name=demo", "-c", "user.email=demo@example.com", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

/// What should be there at the end: everything, with the line that was added to `todo.md`.
fn with_thought(start: &Hashes) -> Hashes {
    let mut expected = start.clone();
    expected.insert("todo.md".into(), blake3::hash(b"buy bread\ncall Ada\n"));
    expected
}

/// The hash of every file below a folder; git's own only if it is that folder.
fn hashes(root: &Path, inside_git: bool) -> Result<Hashes, Failure> {
    let mut found = Hashes::new();
    let mut folders = vec![root.to_path_buf()];
    let cannot =
        |path: &Path, error: std::io::Error| Failure::fixable(format!("can't read {}", path.display())).because(&error);
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| cannot(&folder, error))?,
        };
        for entry in entries {
            let path = entry.map_err(|error| cannot(&folder, error))?.path();
            if path.is_dir() {
                if inside_git || path.file_name().is_none_or(|name| name != ".git") {
                    folders.push(path);
                }
            } else {
                let bytes = std::fs::read(&path).map_err(|error| cannot(&path, error))?;
                found.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf(), blake3::hash(&bytes));
            }
        }
    }
    Ok(found)
}
