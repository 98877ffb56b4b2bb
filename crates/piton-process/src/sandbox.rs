//! What a sandboxed program is given. Everything else it isn't.

use std::path::PathBuf;

/// By which means a program is shut in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Means {
    /// Bubblewrap if it works here, else the kernel's own.
    #[default]
    Any,
    /// Bubblewrap: namespaces of its own for files, processes, network.
    Bubblewrap,
    /// Landlock, seccomp and resource limits, which need no privilege and work in most containers. Only
    /// for programs that start no others: without a process namespace those could outlive us.
    Kernel,
}

/// A sandbox.
///
/// A program in it can read what it is given and nothing else, write what it is given and nothing else,
/// reach no network, signal no other process, and keeps to its limits. It gets no environment but its own.
/// When this process is root's it runs as the user `nobody`: root is above the limit on processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Files and folders that it may read and execute.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may also write.
    pub write: Vec<PathBuf>,
    /// Whether it may start other programs. That takes bubblewrap.
    pub processes: bool,
    /// How it is shut in.
    pub means: Means,
    /// Where bubblewrap is. A path and not a name: who can write to the search path could else replace
    /// the sandbox.
    pub bubblewrap: PathBuf,
}

/// Where a Linux system keeps programs and libraries.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache"];

impl Sandbox {
    /// One for code: the system's programs and libraries to read, nothing to write, no other programs.
    pub fn for_code() -> Self {
        Self {
            read: SYSTEM.map(PathBuf::from).into(),
            write: Vec::new(),
            processes: false,
            means: Means::Any,
            bubblewrap: "/usr/bin/bwrap".into(),
        }
    }

    /// One for a program that may start others.
    pub fn for_command() -> Self {
        Self { processes: true, ..Self::for_code() }
    }

    /// With one more path to read.
    #[must_use]
    pub fn reading(mut self, path: impl Into<PathBuf>) -> Self {
        self.read.push(path.into());
        self
    }

    /// With one more path to write.
    #[must_use]
    pub fn writing(mut self, path: impl Into<PathBuf>) -> Self {
        self.write.push(path.into());
        self
    }

    /// By these means and no others.
    #[must_use]
    pub const fn by(mut self, means: Means) -> Self {
        self.means = means;
        self
    }
}

/// Why there is no sandbox here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// Not on this system.
    #[error("this system has no sandbox that Piton knows; the program was not run")]
    Platform,
    /// Bubblewrap is missing or doesn't work.
    #[error("bubblewrap doesn't work here ({0}); the program was not run")]
    Bubblewrap(String),
    /// The kernel lacks Landlock or seccomp.
    #[error("the kernel has no Landlock and seccomp ({0}); the program was not run")]
    Kernel(String),
    /// Neither does.
    #[error(
        "there is no sandbox here: bubblewrap doesn't work ({bubblewrap}), and the kernel has no Landlock and seccomp ({kernel}); the program was not run"
    )]
    Nothing {
        /// What is wrong with bubblewrap.
        bubblewrap: String,
        /// What is wrong with the kernel.
        kernel: String,
    },
    /// The kernel's own means aren't enough for a program that starts others.
    #[error("a program that starts others needs bubblewrap, which doesn't work here ({0}); the program was not run")]
    Processes(String),
}
