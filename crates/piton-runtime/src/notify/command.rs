//! A program that is given the notice as JSON on its standard input.

use std::process::Stdio;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::{Notice, Notify, NotifyError};

/// Runs a program for every notice: no shell between, its output thrown away.
#[derive(Debug, Clone)]
pub struct CommandHook {
    program: String,
    arguments: Vec<String>,
}

impl CommandHook {
    /// This program with these arguments.
    pub fn new<A: Into<String>>(program: impl Into<String>, arguments: impl IntoIterator<Item = A>) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }

    fn failed(&self, detail: impl ToString) -> NotifyError {
        NotifyError::Command { program: self.program.clone(), detail: detail.to_string() }
    }
}

#[async_trait]
impl Notify for CommandHook {
    fn name(&self) -> String {
        format!("command {:?}", self.program)
    }

    async fn notify(&self, notice: &Notice) -> Result<(), NotifyError> {
        let text = super::webhook::json(notice)?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.failed(format!("can't be run: {error}")))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that doesn't want to know closes it.
            drop(stdin.write_all(text.as_bytes()).await);
        }
        let status = child.wait().await?;
        if status.success() { Ok(()) } else { Err(self.failed(format!("ended with {status}"))) }
    }
}
