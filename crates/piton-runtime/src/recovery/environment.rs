//! What is around a run, as a port: the system's own, or what a test makes of it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use piton_types::BlobId;
use tokio::io::AsyncReadExt as _;

/// What can be asked of a run's surroundings. Nothing is changed by asking.
#[async_trait]
pub trait Environment: Send + Sync {
    /// Whether there is such a folder.
    async fn is_folder(&self, path: &Path) -> bool;

    /// The hash of a file's content; `None` if there is no such file.
    async fn file_hash(&self, path: &Path) -> std::io::Result<Option<BlobId>>;

    /// Whether there is such a program.
    async fn has_program(&self, name: &str) -> bool;

    /// What a program says of its version; `None` if it isn't asked, or doesn't say.
    async fn program_version(&self, name: &str) -> Option<String>;

    /// Whether an environment variable is set.
    fn has_variable(&self, name: &str) -> bool;

    /// How many bytes are free where `path` is; `None` if that can't be told.
    async fn free_bytes(&self, path: &Path) -> Option<u64>;

    /// Whether a host answers, as `HOST:PORT`; `None` if it isn't asked.
    async fn reaches(&self, host: &str) -> Option<bool>;
}

/// The system's own surroundings. Variables come from the given lookup, so that the embedder decides what
/// is seen.
///
/// A checkpoint must not decide what is run or called: the version of a program is asked, by running it with
/// `--version`, only if the caller listed it, and a host is reached for only if the caller listed it.
#[derive(Clone)]
pub struct SystemEnvironment {
    lookup: Arc<Lookup>,
    programs: BTreeSet<String>,
    hosts: BTreeSet<String>,
    patience: Duration,
}

type Lookup = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// The most that is read of what a program says of its version.
const VERSION_BYTES: u64 = 4096;

impl SystemEnvironment {
    /// With this way to look variables up; `PATH` is where programs are looked for.
    pub fn new(lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static) -> Self {
        Self {
            lookup: Arc::new(lookup),
            programs: BTreeSet::new(),
            hosts: BTreeSet::new(),
            patience: Duration::from_secs(5),
        }
    }

    /// These programs may be run with `--version`.
    #[must_use]
    pub fn asking_programs<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.programs.extend(names.into_iter().map(Into::into));
        self
    }

    /// These hosts may be reached for.
    #[must_use]
    pub fn reaching_hosts<N: Into<String>>(mut self, hosts: impl IntoIterator<Item = N>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// How long a program or a host may take to answer.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    fn find_program(&self, name: &str) -> Option<PathBuf> {
        // A name, not a path: a checkpoint can't point at a file of its own.
        if name.is_empty() || name.contains(['/', '\\', '\0']) {
            return None;
        }
        let path = (self.lookup)("PATH")?;
        std::env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name))
            .find(|file| is_executable(file))
    }
}

fn is_executable(file: &Path) -> bool {
    let Ok(data) = std::fs::metadata(file) else { return false };
    #[cfg(unix)]
    let permitted = std::os::unix::fs::PermissionsExt::mode(&data.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let permitted = true;
    data.is_file() && permitted
}

fn hash_file(path: &Path) -> std::io::Result<Option<BlobId>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        // A pipe or a device would be waited for.
        Ok(data) if !data.is_file() => return Err(std::io::Error::other("it is not a regular file")),
        Ok(_) => {}
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path)?)?;
    Ok(Some(BlobId::new(*hasher.finalize().as_bytes())))
}

#[async_trait]
impl Environment for SystemEnvironment {
    async fn is_folder(&self, path: &Path) -> bool {
        path.is_dir()
    }

    async fn file_hash(&self, path: &Path) -> std::io::Result<Option<BlobId>> {
        let path = path.to_owned();
        let hashed = tokio::task::spawn_blocking(move || hash_file(&path)).await;
        hashed.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }

    async fn has_program(&self, name: &str) -> bool {
        self.find_program(name).is_some()
    }

    async fn program_version(&self, name: &str) -> Option<String> {
        if !self.programs.contains(name) {
            return None;
        }
        let mut child = tokio::process::Command::new(self.find_program(name)?)
            .arg(OsStr::new("--version"))
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .ok()?;
        let stdout = child.stdout.take()?;
        let mut said = Vec::new();
        let read = async {
            stdout.take(VERSION_BYTES).read_to_end(&mut said).await.ok()?;
            child.wait().await.ok()
        };
        tokio::time::timeout(self.patience, read).await.ok()??;
        Some(String::from_utf8_lossy(&said).into_owned())
    }

    fn has_variable(&self, name: &str) -> bool {
        (self.lookup)(name).is_some()
    }

    async fn free_bytes(&self, path: &Path) -> Option<u64> {
        #[cfg(target_os = "linux")]
        {
            let space = rustix::fs::statvfs(path).ok()?;
            Some(space.f_bavail.saturating_mul(space.f_frsize))
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = path;
            None
        }
    }

    async fn reaches(&self, host: &str) -> Option<bool> {
        if !self.hosts.contains(host) {
            return None;
        }
        let connect = tokio::net::TcpStream::connect(host);
        Some(matches!(tokio::time::timeout(self.patience, connect).await, Ok(Ok(_))))
    }
}

impl fmt::Debug for SystemEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemEnvironment")
            .field("programs", &self.programs)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
