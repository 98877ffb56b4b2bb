//! The list of what only reads.
//!
//! A program is on it only if it can neither write nor run another program with the arguments that are allowed
//! here. Options are compared as they are written: an abbreviation or a cluster of short options isn't on the list.

use piton_types::Value;

/// Tools of coding agents that only read, or only change the agent's own notes.
pub(super) const READING_TOOLS: &[&str] = &[
    "AskUserQuestion",
    "BashOutput",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "LS",
    "NotebookRead",
    "Read",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
    "codebase_search",
    "file_search",
    "glob",
    "grep",
    "grep_search",
    "list_dir",
    "list_directory",
    "list_files",
    "read",
    "read_file",
    "read_many_files",
    "search_file_content",
    "search_files",
    "view",
    "view_image",
];
/// Tools of coding agents that read from the outside.
pub(super) const FETCHING_TOOLS: &[&str] =
    &["WebFetch", "WebSearch", "fetch", "google_web_search", "web_fetch", "web_search"];
/// Tools of coding agents that run a shell.
pub(super) const SHELL_TOOLS: &[&str] = &[
    "Bash",
    "Shell",
    "bash",
    "exec_command",
    "execute_command",
    "local_shell",
    "run_command",
    "run_shell_command",
    "run_terminal_cmd",
    "shell",
    "terminal",
];
/// What else a tool that runs a shell may be given without changing what the command does.
const ASIDE: &[&str] = &["cwd", "description", "directory", "run_in_background", "timeout", "timeout_ms", "workdir"];

/// Which arguments a program may have and still only read.
enum Arguments {
    /// All.
    Any,
    /// Operands, numbers like `-5`, and these options.
    Options(&'static [&'static str]),
    /// These alone.
    Words(&'static [&'static str]),
}

fn arguments(program: &str) -> Option<Arguments> {
    Some(match program {
        "basename" | "cat" | "cmp" | "comm" | "cut" | "df" | "dirname" | "du" | "echo" | "false" | "grep" | "head"
        | "id" | "ls" | "nl" | "nproc" | "ps" | "pwd" | "readlink" | "realpath" | "stat" | "tail" | "true"
        | "uname" | "wc" | "which" | "whoami" => Arguments::Any,
        "date" => Arguments::Words(&["-u", "+%F", "+%T", "+%s"]),
        "diff" => Arguments::Options(&["-B", "-N", "-b", "-i", "-q", "-r", "-u", "-w", "--brief", "--unified"]),
        "file" => Arguments::Options(&["-L", "-b", "-i", "--brief", "--mime", "--mime-type"]),
        "find" => Arguments::Options(&[
            "-a",
            "-and",
            "-empty",
            "-iname",
            "-ipath",
            "-maxdepth",
            "-mindepth",
            "-mmin",
            "-mtime",
            "-name",
            "-newer",
            "-not",
            "-o",
            "-or",
            "-path",
            "-print",
            "-print0",
            "-prune",
            "-size",
            "-type",
        ]),
        "rg" => Arguments::Options(&[
            "-A",
            "-B",
            "-C",
            "-F",
            "-S",
            "-U",
            "-c",
            "-e",
            "-g",
            "-i",
            "-l",
            "-n",
            "-o",
            "-t",
            "-v",
            "-w",
            "--files",
            "--hidden",
            "--no-heading",
            "--",
        ]),
        "tree" => Arguments::Options(&["-L", "-a", "-d", "-f"]),
        _ => return None,
    })
}

/// Commands of git that only read, with these options.
const GIT: &[&str] = &["blame", "diff", "log", "ls-files", "rev-parse", "show", "status"];
const GIT_OPTIONS: &[&str] = &[
    "-L",
    "-b",
    "-n",
    "-p",
    "-s",
    "-u",
    "-w",
    "--",
    "--abbrev-ref",
    "--all",
    "--branch",
    "--cached",
    "--decorate",
    "--exclude-standard",
    "--follow",
    "--git-dir",
    "--graph",
    "--is-inside-work-tree",
    "--modified",
    "--name-only",
    "--name-status",
    "--no-color",
    "--no-merges",
    "--numstat",
    "--oneline",
    "--others",
    "--patch",
    "--porcelain",
    "--reverse",
    "--short",
    "--shortstat",
    "--show-toplevel",
    "--staged",
    "--stat",
    "--verify",
];

/// The words of a line that a shell reads as one simple command of bare words, or the first character that makes
/// it something else.
pub(super) fn words(line: &str) -> Result<Vec<&str>, char> {
    let bare = |c: char| c.is_ascii_alphanumeric() || " .,/_-+:@%=~".contains(c);
    match line.chars().find(|&c| !bare(c)) {
        Some(special) => Err(special),
        None => Ok(line.split(' ').filter(|word| !word.is_empty()).collect()),
    }
}

/// Whether a program with these arguments only reads; if not, what of it isn't on the list.
pub(super) fn only_reads(program: &str, given: &[&str]) -> Result<(), String> {
    if program == "git" {
        let Some((command, given)) = given.split_first() else { return Err(program.to_owned()) };
        let name = format!("git {}", named(command));
        return if GIT.contains(command) { allowed(&name, &Arguments::Options(GIT_OPTIONS), given) } else { Err(name) };
    }
    let Some(arguments) = arguments(program) else { return Err(named(program)) };
    allowed(program, &arguments, given)
}

fn allowed(name: &str, arguments: &Arguments, given: &[&str]) -> Result<(), String> {
    let is_number = |word: &str| word.len() > 1 && word[1..].bytes().all(|byte| byte.is_ascii_digit());
    let is_allowed = |word: &str| match arguments {
        Arguments::Any => true,
        Arguments::Options(options) => !word.starts_with('-') || is_number(word) || options.contains(&word),
        Arguments::Words(words) => words.contains(&word),
    };
    match given.iter().find(|word| !is_allowed(word)) {
        Some(word) => Err(format!("{name} {}", named(word))),
        None => Ok(()),
    }
}

/// A word without the value that may be in it, and not too long: it goes into a description.
fn named(word: &str) -> String {
    word.split('=').next().unwrap_or_default().chars().take(40).collect()
}

/// What a tool that runs a shell is told to run, if it is told nothing else that counts.
pub(super) fn command(input: &Value) -> Option<&Value> {
    let Value::Map(fields) = input else { return None };
    let mut command = None;
    for (name, value) in fields {
        if ["command", "cmd"].contains(&name.as_str()) {
            if command.replace(value).is_some() {
                return None;
            }
        } else if !ASIDE.contains(&name.as_str()) {
            return None;
        }
    }
    command
}
