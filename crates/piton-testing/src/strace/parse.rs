//! Reads what `strace -f -y -xx -o FILE` writes. With `-xx` every text and every path is in hex, so
//! that brackets, commas and quotes in the trace are always its own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One system call that came back.
#[derive(Debug, Clone)]
pub struct Call {
    /// The thread that made it.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Its arguments as `strace` prints them.
    pub args: Vec<String>,
    /// What it returned; `None` if `strace` doesn't know.
    pub result: Option<i64>,
    /// The file that a returned descriptor stands for.
    pub opened: Option<OpenPath>,
    /// The line of the trace where it was entered.
    pub begin: usize,
    /// The line where it came back.
    pub end: usize,
}

/// What a descriptor stood for when the call was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPath {
    /// The path, or something like `pipe:[1]`.
    pub path: PathBuf,
    /// No name leads to it any more, or none ever did.
    pub deleted: bool,
}

impl Call {
    /// Whether it did what it was asked.
    pub fn succeeded(&self) -> bool {
        self.result.is_some_and(|result| result >= 0)
    }

    /// The descriptor in an argument.
    pub fn descriptor(&self, arg: usize) -> Option<i64> {
        let text = self.args.get(arg)?;
        text.split('<').next()?.parse().ok()
    }

    /// The file that a descriptor (or `AT_FDCWD`) in an argument stands for.
    pub fn file(&self, arg: usize) -> Option<OpenPath> {
        open_path(self.args.get(arg)?)
    }

    /// A text in an argument.
    ///
    /// # Panics
    /// If `strace` cut it short.
    pub fn text(&self, arg: usize) -> Option<Vec<u8>> {
        let text = self.args.get(arg)?.strip_prefix('"')?;
        let Some(text) = text.strip_suffix('"') else { panic!("strace cut short the data of {}", self.name) };
        Some(unescape(text))
    }

    /// A path in an argument.
    pub fn path(&self, arg: usize) -> Option<PathBuf> {
        Some(OsString::from_vec(self.text(arg)?).into())
    }

    /// A number in an argument, decimal, octal or hexadecimal.
    pub fn number(&self, arg: usize) -> Option<i64> {
        number(self.args.get(arg)?)
    }

    /// Whether an argument names this flag.
    pub fn has_flag(&self, arg: usize, flag: &str) -> bool {
        self.args.get(arg).is_some_and(|text| text.split('|').any(|word| word == flag))
    }

    /// The buffers of an `iovec` argument, joined.
    ///
    /// # Panics
    /// If `strace` cut them short.
    pub fn buffers(&self, arg: usize) -> Vec<u8> {
        let text = self.args.get(arg).map_or("", String::as_str);
        assert!(!text.contains("..."), "strace cut short the data of {}", self.name);
        text.split("iov_base=\"").skip(1).flat_map(|rest| unescape(rest.split('"').next().unwrap_or(""))).collect()
    }

    /// Whether it can change a file, a name or what was told to the world. Opening counts if it may
    /// create or cut a file; events to oneself don't count.
    pub fn changes(&self) -> bool {
        match self.name.as_str() {
            "open" | "openat" | "openat2" => {
                self.args.iter().any(|arg| ["O_CREAT", "O_TRUNC", "O_TMPFILE"].iter().any(|flag| arg.contains(flag)))
            }
            "write" | "writev" => !self.file(0).is_some_and(|file| file.path.starts_with("anon_inode:[eventfd]")),
            name => super::CHANGING.contains(&name),
        }
    }

    /// Whether it concerns a file under `root`.
    pub fn touches(&self, root: &Path) -> bool {
        let opened = self.opened.as_ref().map(|file| file.path.clone());
        self.paths().chain(opened).any(|path| path.starts_with(root))
    }

    /// Every absolute path in its arguments.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..self.args.len()).filter_map(|arg| match self.file(arg) {
            Some(file) => Some(file.path),
            None if self.name.contains("write") || self.name.contains("read") => None,
            None => self.args[arg].ends_with('"').then(|| self.path(arg)).flatten(),
        })
    }
}

/// Reads a trace. Lines that aren't system calls, and calls that never came back, are left out. Calls
/// are in the order in which they came back.
pub fn parse(trace: &str) -> Vec<Call> {
    let mut entered: HashMap<u32, (usize, String)> = HashMap::new();
    let mut calls = Vec::new();
    for (line, text) in trace.lines().enumerate() {
        let (thread, text) = match text.split_once(' ') {
            Some((pid, rest)) if pid.bytes().all(|b| b.is_ascii_digit()) => {
                (pid.parse().unwrap_or(0), rest.trim_start())
            }
            _ => (0, text),
        };
        if let Some(text) = text.strip_suffix("<unfinished ...>") {
            entered.insert(thread, (line, text.trim_end().to_owned()));
        } else if let Some((_, rest)) = text.strip_prefix("<... ").and_then(|text| text.split_once(" resumed>")) {
            if let Some((begin, start)) = entered.remove(&thread) {
                calls.extend(call(thread, &format!("{start}{rest}"), begin, line));
            }
        } else {
            calls.extend(call(thread, text, line, line));
        }
    }
    calls
}

fn call(thread: u32, text: &str, begin: usize, end: usize) -> Option<Call> {
    let open = text.find('(')?;
    let name = &text[..open];
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let (args, rest) = arguments(&text[open + 1..])?;
    let result = rest.trim_start().strip_prefix("= ")?;
    let first = result.split([' ', '<']).next()?;
    Some(Call {
        thread,
        name: name.to_owned(),
        args,
        result: number(first),
        opened: open_path(result.split(' ').next()?),
        begin,
        end,
    })
}

/// Splits at the commas outside of quotes and brackets; returns what follows the closing bracket.
fn arguments(text: &str) -> Option<(Vec<String>, &str)> {
    let (mut args, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_u32, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                if at > start {
                    args.push(text[start..at].trim().to_owned());
                }
                return Some((args, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                args.push(text[start..at].trim().to_owned());
                start = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// `3<\x2f\x61>` or `3<\x2f\x61>(deleted)`.
fn open_path(text: &str) -> Option<OpenPath> {
    let (number, rest) = text.split_once('<')?;
    if number != "AT_FDCWD" && number.parse::<i64>().is_err() {
        return None;
    }
    let (path, rest) = rest.split_once('>')?;
    Some(OpenPath { path: OsString::from_vec(unescape(path)).into(), deleted: rest.starts_with("(deleted)") })
}

fn number(text: &str) -> Option<i64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(u64::cast_signed);
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => i64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut at = 0;
    while at < text.len() {
        let escaped = text.get(at..at + 4).filter(|four| four.starts_with(b"\\x"));
        let value = escaped
            .and_then(|four| std::str::from_utf8(&four[2..]).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(value.unwrap_or(text[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_calls_threads_and_interruptions() {
        let calls = parse(concat!(
            "10 openat(AT_FDCWD<\\x2f\\x74>, \"\\x61\\x2c\", O_RDWR|O_CREAT, 0600) = 3<\\x2f\\x74\\x2f\\x61\\x2c>\n",
            "10 write(3<\\x2f\\x61>, \"\\x68\\x29\", 2 <unfinished ...>\n",
            "11 pwritev2(4<\\x2f\\x62>(deleted), [{iov_base=\"\\x61\", iov_len=1}, {iov_base=\"\\x62\", iov_len=1}], 2, 7, 0) = 2\n",
            "10 <... write resumed>)              = 2\n",
            "10 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3<\\x2f\\x61>, 0) = 0x7f2bc4e81000\n",
            "10 rename(\"\\x61\", \"\\x62\") = -1 ENOENT (No such file or directory)\n",
            "10 --- SIGCHLD {si_signo=SIGCHLD} ---\n",
            "10 fsync(3<\\x2f\\x61> <unfinished ...>\n",
            "10 +++ killed by SIGKILL +++\n",
        ));
        let names: Vec<_> = calls.iter().map(|call| (call.thread, call.name.as_str(), call.begin, call.end)).collect();
        assert_eq!(
            names,
            [
                (10, "openat", 0, 0),
                (11, "pwritev2", 2, 2),
                (10, "write", 1, 3),
                (10, "mmap", 4, 4),
                (10, "rename", 5, 5)
            ]
        );
        assert_eq!(calls[0].opened, Some(OpenPath { path: "/t/a,".into(), deleted: false }));
        assert_eq!((calls[0].path(1), calls[0].has_flag(2, "O_CREAT")), (Some("a,".into()), true));
        assert_eq!(calls[0].file(0), Some(OpenPath { path: "/t".into(), deleted: false }));
        assert_eq!((calls[1].buffers(1), calls[1].number(3)), (b"ab".to_vec(), Some(7)));
        assert!(calls[1].file(0).is_some_and(|file| file.deleted));
        assert_eq!((calls[2].text(1), calls[2].result), (Some(b"h)".to_vec()), Some(2)));
        assert_eq!((calls[4].result, calls[4].succeeded()), (Some(-1), false));
    }

    #[test]
    fn knows_what_changes_something() {
        let calls = parse(concat!(
            "1 openat(AT_FDCWD<\\x2f>, \"\\x61\", O_RDONLY) = 3<\\x2f\\x61>\n",
            "1 openat(AT_FDCWD<\\x2f>, \"\\x61\", O_RDWR|O_CREAT, 0600) = 3<\\x2f\\x61>\n",
            "1 write(1<\\x70>, \"\\x61\", 1) = 1\n",
            "1 read(3<\\x2f\\x61>, \"\\x61\", 1) = 1\n",
            "1 unlink(\"\\x2f\\x61\") = 0\n",
        ));
        assert_eq!(calls.iter().map(Call::changes).collect::<Vec<_>>(), [false, true, true, false, true]);
        let touches: Vec<_> = calls.iter().map(|call| call.touches(Path::new("/a"))).collect();
        assert_eq!(touches, [true, true, false, true, true]);
        assert!(!calls[3].touches(Path::new("/b")), "what was read is not a path");
    }
}
