//! Which operations of an agent are dangerous, so that a checkpoint comes before them (C2).
//!
//! An operation is dangerous unless it is on a short list of what only reads. The list decides when to save and
//! stops nothing, and a checkpoint too many costs little; so it holds what agents do most, not all that is
//! harmless. Dangerous by default are therefore shell commands, writes, deletes, moves, package and git commands,
//! and whatever sends something out. Harmless by default:
//!
//! | operation | harmless if |
//! |---|---|
//! | a shell line | it is one simple command of the list: bare words of ASCII letters, digits and `. , / _ - + : @ % = ~`, with spaces between. Quotes, variables, globs, pipes, redirections and every other character make it dangerous |
//! | a program | it is `basename`, `cat`, `cmp`, `comm`, `cut`, `df`, `dirname`, `du`, `echo`, `false`, `grep`, `head`, `id`, `ls`, `nl`, `nproc`, `ps`, `pwd`, `readlink`, `realpath`, `stat`, `tail`, `true`, `uname`, `wc`, `which` or `whoami`, whatever its arguments are |
//! | | it is `date`, `diff`, `file`, `find`, `rg`, `tree` or `git` (`blame`, `diff`, `log`, `ls-files`, `rev-parse`, `show`, `status`), and every option is on the list of options that only read |
//! | | it is named without a folder: `./ls` and `/tmp/ls` are other programs |
//! | a tool | it has one of the names that coding agents give to tools that read: `Read`, `Grep`, `Glob`, `read_file`, … |
//! | a tool that runs a shell | its name is `Bash`, `shell`, `run_shell_command`, …, and what it is given is harmless as a shell line or program |
//! | a request | it is GET, HEAD or OPTIONS, or a tool that fetches; it is *external*, which has a trigger of its own |
//!
//! [`DangerSettings`] names more programs and tools, and [`Classifier::with`] asks a function of the application.
//!
//! What the classifier can't see: that a program of the list was replaced where it is installed, or by an alias
//! or a function of the shell; what the configuration of a repository or of a user makes `git` or `rg` run.

mod list;

use std::fmt;
use std::sync::Arc;

use piton_runtime::{Autosave, Checkpointed, RunError};
use piton_types::{CheckpointRef, Trigger, Value};
use serde::{Deserialize, Serialize};

/// Something that an agent is about to do.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// A line for a shell.
    Shell(&'a str),
    /// A program and its arguments, without a shell between.
    Program(&'a [String]),
    /// A tool, by the name that the model knows it by.
    Tool {
        /// Its name.
        name: &'a str,
        /// What it is called with.
        input: &'a Value,
    },
    /// A file is written.
    Write(&'a str),
    /// A file is deleted.
    Delete(&'a str),
    /// A file is moved.
    Move(&'a str, &'a str),
    /// A request is sent.
    Http {
        /// Its method.
        method: &'a str,
        /// Where to.
        url: &'a str,
    },
}

/// What a dangerous operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DangerKind {
    /// Runs a command that isn't known to only read.
    Run,
    /// Calls a tool that isn't known to only read.
    Call,
    /// Writes.
    Write,
    /// Deletes.
    Delete,
    /// Moves.
    Move,
    /// Sends something out.
    Send,
    /// What the settings or the application call dangerous.
    Custom,
}

impl fmt::Display for DangerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Call => "call",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Move => "move",
            Self::Send => "send",
            Self::Custom => "declared dangerous:",
        })
    }
}

/// Why an operation is dangerous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Danger {
    /// What it does.
    pub kind: DangerKind,
    /// To or with what: a program, a file, a tool.
    pub what: String,
}

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.what)
    }
}

/// What an operation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It only reads, and only here.
    Harmless,
    /// It only reads, but from the outside.
    External,
    /// It may change something.
    Dangerous(Danger),
}

impl Verdict {
    /// Whether it may change something.
    pub const fn is_dangerous(&self) -> bool {
        matches!(self, Self::Dangerous(_))
    }

    /// The trigger that it pulls, if any.
    pub const fn trigger(&self) -> Option<Trigger> {
        match self {
            Self::Harmless => None,
            Self::External => Some(Trigger::BeforeExternal),
            Self::Dangerous(_) => Some(Trigger::BeforeDangerous),
        }
    }

    fn dangerous(kind: DangerKind, what: impl Into<String>) -> Self {
        Self::Dangerous(Danger { kind, what: what.into() })
    }
}

/// What a user adds to the default list, or takes off it. What both kinds of list name is dangerous.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DangerSettings {
    /// Programs that are dangerous, whatever their arguments are.
    pub dangerous_programs: Vec<String>,
    /// Programs that are harmless, whatever their arguments are.
    pub harmless_programs: Vec<String>,
    /// Tools that are dangerous, by their whole names.
    pub dangerous_tools: Vec<String>,
    /// Tools that are harmless, by their whole names.
    pub harmless_tools: Vec<String>,
}

/// Tells dangerous operations from harmless ones. See the [default list](crate::danger) and its limits.
///
/// ```
/// use piton_agents::danger::{Classifier, DangerSettings, Operation};
///
/// let classifier = Classifier::default();
/// let is_dangerous = |line| classifier.classify(Operation::Shell(line)).is_dangerous();
/// assert!(!is_dangerous("grep -rn bees src"));
/// assert!(is_dangerous("cargo test"));
/// assert!(is_dangerous("ls; rm -rf build"));
///
/// let settings = DangerSettings { harmless_programs: vec!["cargo".into()], ..DangerSettings::default() };
/// let classifier = Classifier::new(settings).with(|operation| None);
/// assert!(!classifier.classify(Operation::Shell("cargo test")).is_dangerous());
/// ```
#[derive(Clone, Default)]
pub struct Classifier {
    settings: DangerSettings,
    custom: Vec<Arc<Custom>>,
}

type Custom = dyn Fn(&Operation<'_>) -> Option<Danger> + Send + Sync;

impl Classifier {
    /// The default list with these changes.
    pub const fn new(settings: DangerSettings) -> Self {
        Self { settings, custom: Vec::new() }
    }

    /// Asks `custom` too; what it calls dangerous is.
    #[must_use]
    pub fn with(mut self, custom: impl Fn(&Operation<'_>) -> Option<Danger> + Send + Sync + 'static) -> Self {
        self.custom.push(Arc::new(custom));
        self
    }

    /// What an operation is.
    pub fn classify(&self, operation: Operation<'_>) -> Verdict {
        if let Some(danger) = self.custom.iter().find_map(|custom| custom(&operation)) {
            return Verdict::Dangerous(danger);
        }
        match operation {
            Operation::Shell(line) => self.line(line),
            Operation::Program(words) => self.program(&words.iter().map(String::as_str).collect::<Vec<_>>()),
            Operation::Tool { name, input } => self.tool(name, input),
            Operation::Write(path) => Verdict::dangerous(DangerKind::Write, path),
            Operation::Delete(path) => Verdict::dangerous(DangerKind::Delete, path),
            Operation::Move(from, _) => Verdict::dangerous(DangerKind::Move, from),
            Operation::Http { method, url } => {
                if ["GET", "HEAD", "OPTIONS"].iter().any(|safe| method.eq_ignore_ascii_case(safe)) {
                    Verdict::External
                } else {
                    Verdict::dangerous(DangerKind::Send, format!("{method} {url}"))
                }
            }
        }
    }

    /// An operation is about to start. If it is dangerous or talks to the outside, and the policy of `autosave` says
    /// so, this returns the checkpoint that is durable before it.
    pub async fn save_before(
        &self,
        operation: Operation<'_>,
        autosave: &mut Autosave,
        content: &mut dyn Checkpointed,
    ) -> Result<Option<CheckpointRef>, RunError> {
        let verdict = self.classify(operation);
        let Some(trigger) = verdict.trigger() else { return Ok(None) };
        let about = match verdict {
            Verdict::Dangerous(danger) => format!("before: {danger}"),
            Verdict::Harmless | Verdict::External => "before a call to the outside".to_owned(),
        };
        autosave.happened(trigger, &about, content).await
    }

    fn line(&self, line: &str) -> Verdict {
        match list::words(line) {
            Ok(words) => self.program(&words),
            Err(special) => Verdict::dangerous(DangerKind::Run, format!("a line with {special:?}")),
        }
    }

    fn program(&self, words: &[&str]) -> Verdict {
        let Some((&program, arguments)) = words.split_first() else {
            return Verdict::dangerous(DangerKind::Run, "an empty line");
        };
        let listed = |programs: &[String]| programs.iter().any(|known| known == program);
        if listed(&self.settings.dangerous_programs) {
            return Verdict::dangerous(DangerKind::Custom, program);
        }
        if listed(&self.settings.harmless_programs) {
            return Verdict::Harmless;
        }
        match list::only_reads(program, arguments) {
            Ok(()) => Verdict::Harmless,
            Err(what) => Verdict::dangerous(DangerKind::Run, what),
        }
    }

    fn tool(&self, name: &str, input: &Value) -> Verdict {
        let listed = |tools: &[String]| tools.iter().any(|known| known == name);
        if listed(&self.settings.dangerous_tools) {
            return Verdict::dangerous(DangerKind::Custom, name);
        }
        if listed(&self.settings.harmless_tools) || list::READING_TOOLS.contains(&name) {
            return Verdict::Harmless;
        }
        if list::FETCHING_TOOLS.contains(&name) {
            return Verdict::External;
        }
        let command = list::SHELL_TOOLS.contains(&name).then(|| list::command(input)).flatten();
        match command {
            Some(Value::String(line)) => self.line(line),
            Some(Value::List(words)) if words.iter().all(|word| word.as_str().is_some()) => {
                self.program(&words.iter().filter_map(Value::as_str).collect::<Vec<_>>())
            }
            _ => Verdict::dangerous(DangerKind::Call, name),
        }
    }
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(verdict: Verdict) -> String {
        match verdict {
            Verdict::Harmless => "harmless".to_owned(),
            Verdict::External => "external".to_owned(),
            Verdict::Dangerous(danger) => danger.to_string(),
        }
    }

    fn shell(line: &str) -> String {
        shown(Classifier::default().classify(Operation::Shell(line)))
    }

    /// C2.
    #[test]
    fn what_only_reads_is_harmless() {
        for line in [
            "ls",
            "ls -la --color=never src/danger",
            "  cat   a.txt b.txt ",
            "head -n 20 src/main.rs",
            "tail -c +100 ~/notes.txt",
            "grep -rn --include=a.rs bees src tests",
            "wc -l a",
            "echo hello, world",
            "stat -c %s a",
            "which cargo",
            "date",
            "date -u +%F",
            "diff -u a b",
            "file -b a",
            "find src -type f -newer a",
            "find . -maxdepth 2 -size +10k",
            "rg -n -i bees src",
            "rg -C 3 bees",
            "tree -L 2 src",
            "git status",
            "git status --short",
            "git log --oneline -5",
            "git diff HEAD~1 -- src",
            "git diff main..HEAD~2 --stat",
            "git show HEAD:src/main.rs",
            "git rev-parse --show-toplevel",
            "git blame src/main.rs",
            "git ls-files --others --exclude-standard",
        ] {
            assert_eq!(shell(line), "harmless", "{line:?}");
        }
    }

    /// C2: the groups of the requirement, and programs of the list that do more when told to.
    #[test]
    fn what_is_not_on_the_list_is_dangerous() {
        for (line, expected) in [
            ("rm -rf build", "run rm"),
            ("mv a b", "run mv"),
            ("tee a", "run tee"),
            ("sed -i s/a/b/ x", "run sed"),
            ("apt-get install x", "run apt-get"),
            ("npm test", "run npm"),
            ("cargo build", "run cargo"),
            ("python x.py", "run python"),
            ("bash script.sh", "run bash"),
            ("curl https://example.org", "run curl"),
            ("ssh host ls", "run ssh"),
            // These run the command that follows.
            ("sudo ls", "run sudo"),
            ("env ls", "run env"),
            ("xargs ls", "run xargs"),
            ("time ls", "run time"),
            ("command ls", "run command"),
            ("exec ls", "run exec"),
            ("eval ls", "run eval"),
            ("busybox ls", "run busybox"),
            ("source a", "run source"),
            (". a", "run ."),
            ("alias ls=rm", "run alias"),
            ("git", "run git"),
            ("git commit -am x", "run git commit"),
            ("git push", "run git push"),
            ("git branch x", "run git branch"),
            ("git -C .. status", "run git -C"),
            ("git -c alias.x=y x", "run git -c"),
            ("git --exec-path=. status", "run git --exec-path"),
            ("git log --output=x", "run git log --output"),
            ("git log --outp=x", "run git log --outp"),
            ("git diff --ext-diff", "run git diff --ext-diff"),
            ("git diff -- --ext-diff", "run git diff --ext-diff"),
            ("git show --textconv", "run git show --textconv"),
            ("git log --format=%G?", "run a line with '?'"),
            ("git log --format=%GS", "run git log --format"),
            ("git grep -O x", "run git grep"),
            ("rg --pre ./x bees", "run rg --pre"),
            ("rg --pre=./x bees", "run rg --pre"),
            ("rg --hostname-bin=x bees", "run rg --hostname-bin"),
            ("rg -z bees", "run rg -z"),
            ("rg -nz bees", "run rg -nz"),
            ("find . -delete", "run find -delete"),
            ("find . -exec rm a +", "run find -exec"),
            ("find . -execdir rm a +", "run find -execdir"),
            ("find . -ok rm a", "run find -ok"),
            ("find . -fprint a", "run find -fprint"),
            ("date -s 12:00", "run date -s"),
            ("date --set=12:00", "run date --set"),
            ("date 010100002030", "run date 010100002030"),
            ("diff -l a b", "run diff -l"),
            ("file -C -m a", "run file -C"),
            ("file -z a", "run file -z"),
            ("tree -o a", "run tree -o"),
            ("sort -o a b", "run sort"),
            ("uniq a b", "run uniq"),
        ] {
            assert_eq!(shell(line), expected, "{line:?}");
        }
    }

    /// C2: what a shell would read as more than one simple command of bare words.
    #[test]
    fn hostile_spellings_are_dangerous() {
        for line in [
            "",
            " ",
            "ls; rm x",
            "ls && rm x",
            "ls || rm x",
            "ls & rm x",
            "ls | sh",
            "ls\nrm x",
            "ls\rrm x",
            "ls\trm",
            "ls > a",
            "ls >> a",
            "ls 2>a",
            "ls &>a",
            "ls >|a",
            "cat < a",
            "cat <<E",
            "cat <(rm x)",
            "echo $(rm x)",
            "echo `rm x`",
            "echo $X",
            "echo ${X}",
            "echo \"a\"",
            "echo 'a'",
            "echo $'\\x3b'",
            "rg '--pre' x",
            "rg \"--p\"re x",
            "r\\m x",
            "l\\\ns",
            "(ls)",
            "{ ls",
            "ls {a,b}",
            "ls *",
            "ls a?",
            "ls [ab]",
            "ls !x",
            "!ls",
            "ls # x",
            // Older shells redirect or pipe with it.
            "ls ^a",
            "X=1 ls",
            "PATH=. ls",
            "LD_PRELOAD=x ls",
            "=ls",
            "./ls",
            "../ls",
            "/tmp/cat a",
            "/bin/ls",
            "~/ls",
            "LS",
            "ls\0",
            "ls\0;rm x",
            "ls\u{a0}-l",
            "ls\u{2003}-l",
            "ls\u{3000}rm",
            "ls\u{200b}",
            "ls\u{2028}rm x",
            "ls\u{85}rm x",
            "ls \u{37e} rm",
            "ｌｓ",
            "lѕ",
            "ls \u{202e}x",
            "ls \u{1b}[2J",
            "ls \u{8}",
            "--",
            "-",
            "日本",
        ] {
            assert!(shell(line).starts_with("run "), "{line:?}: {}", shell(line));
        }
        let long = "a".repeat(10_000_000);
        assert_eq!(shell(&format!("ls {long}")), "harmless");
        assert!(shell(&long).len() < 60);
        assert!(shell(&format!("rg --{long}")).len() < 60);
        assert!(shell(&format!("ls {};", "a ".repeat(1_000_000))).starts_with("run "));
    }

    /// The text goes into the description of a checkpoint, and what is given to a program may be secret.
    #[test]
    fn the_reason_names_no_values() {
        assert_eq!(shell("TOKEN=secret deploy"), "run TOKEN");
        assert_eq!(shell("deploy secret"), "run deploy");
        assert_eq!(shell("rg --pre=secret x"), "run rg --pre");
    }

    #[test]
    fn arguments_without_a_shell_are_taken_as_they_are() {
        let classify = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
            shown(Classifier::default().classify(Operation::Program(&words)))
        };
        assert_eq!(classify(&["echo", "$(rm x)", ">", "a"]), "harmless");
        assert_eq!(classify(&["find", ".", "-name", "*.rs"]), "harmless");
        assert_eq!(classify(&["find", ".", "-delete"]), "run find -delete");
        assert_eq!(classify(&["sh", "-c", "ls"]), "run sh");
        assert_eq!(classify(&["ls -l"]), "run ls -l");
        assert_eq!(classify(&[""]), "run ");
        assert_eq!(classify(&[]), "run an empty line");
    }

    #[test]
    fn tools_are_known_by_their_whole_names() {
        let nothing = Value::Null;
        let line = |line: &str| Value::map([("command", Value::from(line)), ("description", Value::from("looks"))]);
        let words = |words: &[&str]| {
            Value::map([("cmd", Value::from(words.iter().map(|&word| Value::from(word)).collect::<Vec<_>>()))])
        };
        for (name, input, expected) in [
            ("Read", nothing.clone(), "harmless"),
            ("Grep", nothing.clone(), "harmless"),
            ("read_file", nothing.clone(), "harmless"),
            ("WebFetch", nothing.clone(), "external"),
            ("Bash", line("ls"), "harmless"),
            ("Bash", line("ls; git push"), "run a line with ';'"),
            ("Bash", nothing.clone(), "call Bash"),
            ("Bash", Value::map([("command", Value::from(7))]), "call Bash"),
            // What else a shell is given may change what the line does.
            ("Bash", Value::map([("command", Value::from("ls")), ("env", Value::from("x"))]), "call Bash"),
            ("Bash", Value::map([("command", Value::from("ls")), ("cmd", Value::from("rm x"))]), "call Bash"),
            ("shell", words(&["ls", "-l"]), "harmless"),
            ("shell", words(&["mv", "a", "b"]), "run mv"),
            ("shell", words(&["bash", "-lc", "ls"]), "run bash"),
            ("shell", Value::map([("cmd", Value::from(vec![Value::from("ls"), Value::from(1)]))]), "call shell"),
            ("Write", nothing.clone(), "call Write"),
            ("Task", nothing.clone(), "call Task"),
            ("delete_file", nothing.clone(), "call delete_file"),
            // A server of unknown origin may call its tools what it likes.
            ("mcp__files__Read", nothing.clone(), "call mcp__files__Read"),
            ("read", nothing.clone(), "harmless"),
            ("READ", nothing.clone(), "call READ"),
            ("Read ", nothing.clone(), "call Read "),
            ("frobnicate", line("ls"), "call frobnicate"),
            ("", nothing.clone(), "call "),
        ] {
            let verdict = Classifier::default().classify(Operation::Tool { name, input: &input });
            assert_eq!(shown(verdict), expected, "{name} {input:?}");
        }
    }

    #[test]
    fn requests_go_out_and_some_change_things() {
        let classify = |method| Classifier::default().classify(Operation::Http { method, url: "http://a" });
        assert_eq!(classify("get").trigger(), Some(Trigger::BeforeExternal));
        assert_eq!(classify("POST").trigger(), Some(Trigger::BeforeDangerous));
        assert_eq!(shown(classify("BREW")), "send BREW http://a");
    }

    #[test]
    fn the_list_can_be_extended() {
        let settings: DangerSettings = toml::from_str(
            "harmless_programs = ['cargo', 'rm']\ndangerous_programs = ['rm', 'ls']\nharmless_tools = ['frobnicate']\ndangerous_tools = ['Read']",
        )
        .unwrap();
        let classifier = Classifier::new(settings).with(|operation| match operation {
            Operation::Shell(line) if line.contains("prod") => {
                Some(Danger { kind: DangerKind::Custom, what: "prod".into() })
            }
            _ => None,
        });
        let shell = |line| shown(classifier.classify(Operation::Shell(line)));
        assert_eq!(shell("cargo build"), "harmless");
        assert_eq!(shell("cargo build > a"), "run a line with '>'");
        assert_eq!(shell("rm x"), "declared dangerous: rm");
        assert_eq!(shell("ls"), "declared dangerous: ls");
        assert_eq!(shell("cat prod"), "declared dangerous: prod");
        let tool = |name| shown(classifier.classify(Operation::Tool { name, input: &Value::Null }));
        assert_eq!((tool("frobnicate").as_str(), tool("Read").as_str()), ("harmless", "declared dangerous: Read"));
    }
}
