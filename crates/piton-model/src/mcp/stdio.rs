//! A server that is a program: its pipes, and the end of its complaints.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use piton_process::Process;
use rmcp::RoleClient;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use super::error::McpError;
use super::{ServerConfig, Transport};

/// How much of its complaints is kept.
const MAX_TAIL: usize = 2000;

type Pipes = AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>;

/// The end of what a program complains, as it comes.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    /// What there is, once the program had a moment to say it.
    pub(super) async fn text(&self) -> String {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    async fn follow(self, mut stderr: ChildStderr) {
        let mut chunk = [0; 1024];
        while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
            let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            bytes.extend_from_slice(&chunk[..read]);
            let surplus = bytes.len().saturating_sub(MAX_TAIL);
            bytes.drain(..surplus);
        }
    }
}

pub(super) async fn start(config: &ServerConfig) -> Result<(Process, Pipes, Tail), McpError> {
    let Transport::Stdio { command: program, args, env, folder } = &config.transport else {
        return Err(McpError::Config("it isn't a program".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(env);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let cannot = |source| McpError::Start { command: program.clone(), source };
    let mut process = Process::start(command).await.map_err(cannot)?;
    let tail = Tail::default();
    let pipes = (process.stdin(), process.stdout(), process.stderr());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(McpError::Config("its pipes are gone".to_owned()));
    };
    // Ends when the program does, which is at the latest when the process is dropped.
    tokio::spawn(tail.clone().follow(stderr));
    Ok((process, AsyncRwTransport::new(stdout, stdin).with_max_line_length(config.max_message), tail))
}
