//! What is known of programs: the documented default list.

use super::DangerKind::{self, Delete, Git, Move, Network, Package, Write};
use super::shell::Word;

/// Programs that do harm by what they are for.
const DANGEROUS: &[(DangerKind, &[&str])] = &[
    (Delete, &["rm", "rmdir", "unlink", "shred", "srm", "trash", "wipefs", "truncate"]),
    (Move, &["mv", "rename", "mmv"]),
    (
        Write,
        &[
            "tee", "cp", "install", "ln", "dd", "touch", "mkdir", "mkfifo", "mknod", "mktemp", "chmod", "chown",
            "chgrp", "chattr", "setfacl", "patch", "sed", "sponge", "split", "csplit", "tar", "unzip", "zip", "gzip",
            "gunzip", "xz", "zstd", "mkfs", "mount", "umount", "ed", "ex", "vi", "vim", "nano", "emacs",
        ],
    ),
    (
        Package,
        &[
            "apt", "apt-get", "aptitude", "dpkg", "yum", "dnf", "rpm", "zypper", "pacman", "apk", "brew", "port",
            "snap", "flatpak", "nix", "nix-env", "pip", "pip3", "pipx", "uv", "uvx", "poetry", "conda", "mamba", "npm",
            "npx", "pnpm", "yarn", "bun", "bunx", "deno", "cargo", "rustup", "gem", "bundle", "go", "composer", "mvn",
            "gradle", "dotnet", "nuget", "cabal", "stack", "opam", "mix", "make", "cmake", "ninja",
        ],
    ),
    (Git, &["git", "gh", "glab", "hg", "svn", "jj", "bzr"]),
    (
        Network,
        &[
            "curl",
            "wget",
            "http",
            "https",
            "xh",
            "ssh",
            "scp",
            "sftp",
            "rsync",
            "rclone",
            "nc",
            "ncat",
            "netcat",
            "socat",
            "telnet",
            "ftp",
            "lftp",
            "mail",
            "sendmail",
            "mutt",
            "aws",
            "gcloud",
            "az",
            "gsutil",
            "s3cmd",
            "kubectl",
            "helm",
            "docker",
            "podman",
            "terraform",
            "ansible",
            "psql",
            "mysql",
            "mongosh",
            "redis-cli",
        ],
    ),
];

/// Programs that only look, whatever they are told.
const HARMLESS: &[&str] = &[
    "ls",
    "dir",
    "cat",
    "tac",
    "head",
    "tail",
    "wc",
    "grep",
    "egrep",
    "fgrep",
    "cut",
    "tr",
    "nl",
    "rev",
    "comm",
    "diff",
    "cmp",
    "stat",
    "du",
    "df",
    "pwd",
    "cd",
    "pushd",
    "popd",
    "echo",
    "printf",
    "true",
    "false",
    ":",
    "test",
    "[",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "id",
    "whoami",
    "groups",
    "uname",
    "arch",
    "nproc",
    "which",
    "type",
    "printenv",
    "ps",
    "pgrep",
    "uptime",
    "free",
    "sleep",
    "seq",
    "jq",
    "md5sum",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "b3sum",
    "cksum",
    "hexdump",
    "od",
    "strings",
    "column",
    "fold",
    "expr",
    "wait",
    "exit",
    "break",
    "continue",
    "return",
];

/// Variables that can be set in front of a command without changing what it runs.
const HARMLESS_VARIABLES: &[&str] =
    &["LANG", "LANGUAGE", "TZ", "TERM", "COLUMNS", "LINES", "NO_COLOR", "CLICOLOR", "FORCE_COLOR", "CI", "RUST_LOG"];

/// Where programs of the system are.
const FOLDERS: &[&str] = &["/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/usr/local/sbin/"];

/// Commands of git that only look.
const LOOKING: &[&str] = &[
    "status",
    "log",
    "diff",
    "show",
    "blame",
    "rev-parse",
    "ls-files",
    "ls-tree",
    "cat-file",
    "describe",
    "shortlog",
    "merge-base",
    "rev-list",
    "version",
    "help",
];

/// The name without the folder, and whether that is where the system keeps programs.
pub(super) fn split(program: &str) -> (&str, bool) {
    match program.rfind('/') {
        None => (program, true),
        Some(slash) => (&program[slash + 1..], FOLDERS.contains(&&program[..=slash])),
    }
}

/// What kind of harm a program is for. Versions and variants (`pip3.12`, `mkfs.ext4`) are known by their stem.
pub(super) fn danger(name: &str) -> Option<DangerKind> {
    let stem = name.split('.').next().unwrap_or(name);
    DANGEROUS.iter().find(|(_, names)| names.contains(&name) || names.contains(&stem)).map(|(kind, _)| *kind)
}

/// Whether it only looks, whatever it is told.
pub(super) fn only_looks(name: &str) -> bool {
    HARMLESS.contains(&name)
}

/// Whether setting this variable can't change what runs.
pub(super) fn is_harmless_variable(name: &str) -> bool {
    HARMLESS_VARIABLES.contains(&name) || name.starts_with("LC_")
}

/// Of a program that may look or do harm, as it is told: the harm. `None` if it isn't such a program.
pub(super) fn as_told(name: &str, arguments: &[Word]) -> Option<Result<(), DangerKind>> {
    let dynamic = arguments.iter().any(|word| word.dynamic);
    let texts: Vec<&str> = arguments.iter().map(|word| word.text.as_str()).collect();
    let any = |wanted: &dyn Fn(&str) -> bool| texts.iter().any(|text| wanted(text));
    // Long options can be shortened: `--out=x` is `--output=x`.
    let long = |name: &'static str, least: usize| {
        move |text: &str| {
            let given = text.split('=').next().unwrap_or(text);
            given.len() >= least && name.starts_with(given)
        }
    };
    let harm = match name {
        "find" => {
            let acts = |text: &str| {
                ["-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls"].contains(&text)
            };
            match () {
                () if any(&|text| text == "-delete") => Some(Delete),
                () if any(&acts) => Some(DangerKind::Shell),
                () => None,
            }
        }
        "sort" => {
            let output = long("--output", 3);
            let program = long("--compress-program", 3);
            // Short options can be joined: `-ro out`.
            let short = |text: &str| text.starts_with('-') && !text.starts_with("--") && text.contains('o');
            match () {
                () if any(&|text| output(text) || short(text)) => Some(Write),
                () if any(&program) => Some(DangerKind::Shell),
                () => None,
            }
        }
        // The second file is written.
        "uniq" => (texts.iter().filter(|text| !text.starts_with('-')).count() > 1).then_some(Write),
        "rg" => {
            any(&|text| text.starts_with("--pre") || text.starts_with("--hostname-bin")).then_some(DangerKind::Shell)
        }
        "tree" => any(&|text| text.starts_with('-') && text.contains('o')).then_some(Write),
        "date" => any(&|text| {
            long("--set", 3)(text) || text.starts_with('-') && !text.starts_with("--") && text.contains('s')
        })
        .then_some(DangerKind::Shell),
        "sed" => {
            let mut operands = texts.iter().filter(|text| !text.starts_with('-'));
            let quiet = texts.iter().filter(|text| text.starts_with('-')).all(|text| ["-n", "-E", "-r"].contains(text));
            let printing = |script: &str| script.chars().all(|c| c.is_ascii_digit() || ",$pdq; ".contains(c));
            (!quiet || !operands.next().is_some_and(|script| printing(script))).then_some(Write)
        }
        "git" => {
            let outputs = |text: &str| text.starts_with("--output") || text == "--ext-diff" || text == "--textconv";
            let looks = texts.first().is_some_and(|command| LOOKING.contains(command) || *command == "--version");
            (!looks || any(&outputs)).then_some(Git)
        }
        _ => return None,
    };
    Some(match harm {
        Some(kind) => Err(kind),
        None if dynamic => Err(danger(name).unwrap_or(DangerKind::Shell)),
        None => Ok(()),
    })
}

/// Of a program that runs another one: its options that take a value of their own, and how many words come
/// before the program.
pub(super) fn wrapper(name: &str) -> Option<(&'static [&'static str], usize)> {
    Some(match name {
        "sudo" => (&["-u", "-g", "-h", "-p", "-C", "-T", "-r", "-t", "-U", "-D", "-R"], 0),
        "doas" => (&["-u", "-C"], 0),
        "env" => (&["-u", "-C"], 0),
        "nice" => (&["-n"], 0),
        "ionice" => (&["-c", "-n", "-p"], 0),
        "timeout" => (&["-s", "-k"], 1),
        "stdbuf" => (&["-i", "-o", "-e"], 0),
        "xargs" => (&["-I", "-n", "-P", "-L", "-s", "-d", "-E", "-a"], 0),
        "nohup" | "setsid" | "command" | "builtin" | "exec" | "time" | "busybox" | "toybox" | "unbuffer" => (&[], 0),
        _ => return None,
    })
}

/// Whether it is a shell.
pub(super) fn is_shell(name: &str) -> bool {
    ["sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "mksh", "rbash"].contains(&name)
}
