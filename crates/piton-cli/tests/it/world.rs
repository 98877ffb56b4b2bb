//! A home, a working folder and the binary.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The binary.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_piton");

/// What one command left.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    fn new(output: Output, world: &World) -> Self {
        let text = |bytes: &[u8]| world.redact(std::str::from_utf8(bytes).unwrap());
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Everything in one text, for snapshots.
    pub(crate) fn whole(&self) -> String {
        let code = self.code.map_or("none".to_owned(), |code| code.to_string());
        let part = |name: &str, text: &str| if text.is_empty() { String::new() } else { format!("--- {name}\n{text}") };
        format!("{}{}--- exit {code}", part("stdout", &self.stdout), part("stderr", &self.stderr))
    }

    /// The one object of a `--json` answer.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.stdout.lines().count(), 1, "one object: {}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// A home and a working folder that vanish with it.
pub(crate) struct World {
    root: tempfile::TempDir,
    /// `PITON_STORE`, if it isn't the folder's own store.
    store: Option<String>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    pub(crate) fn new_in(folder: &Path) -> Self {
        let root = tempfile::tempdir_in(folder).unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        Self { root, store: None }
    }

    /// A world whose store is at this URL.
    pub(crate) fn on(store: &str) -> Self {
        Self { store: Some(store.to_owned()), ..Self::new() }
    }

    /// The URL of that store.
    pub(crate) fn url(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// A world with a document and one finished run of it, `first`.
    pub(crate) fn with_run() -> Self {
        let world = Self::new();
        world.write("flow.yml", THREE_NODES);
        assert_eq!(world.piton(["run", "flow.yml", "-i", "name=Ada", "--id", "first"]).code, Some(0));
        world
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    /// Leaves everything where it is, to be looked at.
    pub(crate) fn keep(self) -> PathBuf {
        self.root.keep()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root().join("home/.local/state/piton")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.work().join(name), text).unwrap();
    }

    /// The lines that programs have left in a file of the folder.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.work().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The binary, about to run in the working folder.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.program(BINARY, arguments)
    }

    /// A program, about to run in the working folder.
    pub(crate) fn program<A: AsRef<OsStr>>(&self, name: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(name);
        command
            .args(arguments)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root().join("home"))
            .envs(self.store.iter().map(|store| ("PITON_STORE", store)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A line for the shell, with `piton` in its path as if it were installed.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let folder = self.root().join("bin");
        if !folder.exists() {
            std::fs::create_dir(&folder).unwrap();
            std::os::unix::fs::symlink(BINARY, folder.join("piton")).unwrap();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.program("sh", ["-c", line]);
        command.env("PATH", format!("{}:{path}", folder.display()));
        command
    }

    /// Runs the binary in the working folder.
    pub(crate) fn piton<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Said {
        Said::new(self.command(arguments).output().unwrap(), self)
    }

    /// Runs the binary in another folder.
    pub(crate) fn piton_in<A: AsRef<OsStr>>(&self, folder: &Path, arguments: impl IntoIterator<Item = A>) -> Said {
        Said::new(self.command(arguments).current_dir(folder).output().unwrap(), self)
    }

    /// Waits for a child that was started from [`command`](Self::command).
    pub(crate) fn wait(&self, child: Child) -> Said {
        Said::new(child.wait_with_output().unwrap(), self)
    }

    /// Takes out what differs from run to run.
    fn redact(&self, text: &str) -> String {
        let mut text = text.replace(self.root().to_str().unwrap(), "[ROOT]");
        // How long something took varies, however short the number is.
        for took in TOOK {
            let mut parts = text.split(took).map(str::to_owned).collect::<Vec<_>>();
            for part in parts.iter_mut().skip(1) {
                let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
                // What hasn't ended took nothing yet, and says `null`.
                if rest.len() < part.len() {
                    *part = format!("0{rest}");
                }
            }
            text = parts.join(took);
        }
        for (start, is_part, name) in FILTERS {
            text = redact(&text, start, *is_part, name);
        }
        text
    }
}

/// Where something that varies begins, which characters belong to it, and what stands for it.
type Filter = (&'static str, fn(char) -> bool, &'static str);

const TOOK: [&str; 2] = ["\"duration_ms\":", "\"worked_ms\":"];

const FILTERS: &[Filter] = &[
    ("state/piton/", |c| c.is_ascii_hexdigit(), "[HASH]"),
    ("202", |c| c.is_ascii_digit() || matches!(c, '-' | ':' | '.' | 'T' | 'Z'), "[TIME]"),
];

/// Replaces what follows `start` (and, if it is part of it, `start` too).
fn redact(text: &str, start: &str, is_part: fn(char) -> bool, name: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(start) {
        let inside = start.chars().all(is_part);
        let body = &rest[at + start.len()..];
        let length = body.find(|c| !is_part(c)).unwrap_or(body.len());
        // A short number is no time and no hash, and a long one no time: it may stand in JSON without quotes.
        let is_year = start != "202" || body.as_bytes().get(1) == Some(&b'-');
        let replaced = length >= 12 && is_year;
        out.push_str(&rest[..if inside && replaced { at } else { at + start.len() }]);
        out.push_str(if replaced { name } else { "" });
        rest = if replaced { &body[length..] } else { body };
    }
    out + rest
}

/// Waits for something that happens soon.
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    for _ in 0..2400 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    panic!("it never happened");
}

/// Ages and durations, which only some tests show.
pub(crate) fn without_ages(text: &str) -> String {
    let words: Vec<_> = text.split(' ').collect();
    let mut out = Vec::new();
    let mut skip = 0;
    for (place, word) in words.iter().enumerate() {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let next = |ahead: usize| words.get(place + ahead).copied().unwrap_or_default();
        let number = word.trim_start_matches('(').parse::<u32>().is_ok();
        if word.ends_with("just") && next(1).starts_with("now") {
            out.push(format!("{}[AGE]{}", word.trim_end_matches("just"), next(1).trim_start_matches("now")));
            skip = 1;
        } else if number && next(1) == "s" && next(2).starts_with("ago") {
            out.push(format!(
                "{}[AGE]{}",
                if word.starts_with('(') { "(" } else { "" },
                next(2).trim_start_matches("ago")
            ));
            skip = 2;
        } else if word.parse::<f64>().is_ok() && next(1) == "s" {
            // On a busy machine what takes milliseconds takes seconds.
            out.push("[TOOK]".to_owned());
            skip = 1;
        } else if number && next(1).starts_with("ms") {
            out.push(format!("[TOOK]{}", next(1).trim_start_matches("ms")));
            skip = 1;
        } else {
            out.push((*word).to_owned());
        }
    }
    // Padding depends on what was there.
    let joined = out.join(" ");
    let lines = joined.lines().map(|line| {
        let mut line = line.to_owned();
        while line.contains("   ") {
            line = line.replace("   ", "  ");
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}

pub(crate) const THREE_NODES: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: name, required: true}]}}
  - {id: greet, data: {type: template-transform, template: 'Hello {{ name }}!', variables: [{variable: name, value_selector: [in, name]}]}}
  - {id: out, data: {type: end, outputs: [{variable: greeting, value_selector: [greet, output]}]}}
edges:
  - {source: in, target: greet}
  - {source: greet, target: out}
";
