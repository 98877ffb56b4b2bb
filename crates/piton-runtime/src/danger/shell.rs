//! A command line, read as a POSIX shell reads it, as far as is needed to know which programs it runs.
//!
//! What can't be read for sure is said to be unclear, never guessed.

/// One simple command: the words, what it redirects to, and the assignments in front.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Command {
    pub(super) assignments: Vec<String>,
    pub(super) words: Vec<Word>,
    /// Files that it writes by `>` and the like.
    pub(super) writes: Vec<String>,
}

/// A word with its quotes taken off.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// What it will be is only known when it runs: a variable, a substitution, a pattern that may become
    /// an option.
    pub(super) dynamic: bool,
    /// Some of it was quoted, so it is no keyword, pattern or assignment.
    quoted: bool,
}

/// What a line runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Command>,
    /// Why it can't be read for sure.
    pub(super) unclear: Option<&'static str>,
}

/// Words that may stand before a command and mean nothing for it.
const KEYWORDS: &[&str] = &["if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"];
/// Words that end something.
const ENDS: &[&str] = &["fi", "done", "}"];
/// Where writing does no harm.
const SINKS: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"];
/// What is wrong with a line that ends too early.
const OPEN: &str = "a quote or parenthesis isn't closed";
/// How deep substitutions are followed.
const DEPTH: usize = 8;

/// Reads a line.
pub(super) fn read(line: &str) -> Script {
    let mut script = Script::default();
    read_into(line, 0, &mut script);
    script
}

fn read_into(line: &str, depth: usize, script: &mut Script) {
    if depth > DEPTH {
        script.unclear = Some("it nests too deep");
        return;
    }
    let mut lexer =
        Lexer { chars: line.chars().collect(), at: 0, word: None, current: Command::default(), redirect: false };
    lexer.run(depth, script);
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    word: Option<Word>,
    current: Command,
    /// The next word is what is redirected to.
    redirect: bool,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn run(&mut self, depth: usize, script: &mut Script) {
        while let Some(c) = self.peek(0) {
            self.at += 1;
            match c {
                ' ' | '\t' | '\r' => self.end_word(),
                '\n' | ';' | '|' | '(' | ')' => self.end_command(script),
                '&' if self.peek(0) == Some('>') => {
                    self.end_word();
                    self.at += 1;
                    self.redirect = true;
                    self.skip_if('>');
                }
                '&' => self.end_command(script),
                '#' if self.word.is_none() => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                '>' => self.redirection(),
                '<' => {
                    // `<<` and `<<<` bring text that isn't commands.
                    if self.peek(0) == Some('<') {
                        return self.give_up(script, "it has a here-document");
                    }
                    self.end_file_descriptor();
                    if self.peek(0) == Some('>') {
                        self.at += 1;
                        self.redirect = true;
                    } else if self.peek(0) == Some('&') {
                        self.at += 1;
                    }
                }
                '\'' => {
                    let end = self.chars[self.at..].iter().position(|c| *c == '\'');
                    let Some(end) = end else { return self.give_up(script, OPEN) };
                    let text: String = self.chars[self.at..self.at + end].iter().collect();
                    self.quote().text.push_str(&text);
                    self.at += end + 1;
                }
                '"' => {
                    if !self.double_quoted(depth, script) {
                        return self.give_up(script, OPEN);
                    }
                }
                '\\' => match self.peek(0) {
                    Some('\n') => self.at += 1,
                    Some(c) => {
                        self.at += 1;
                        self.quote().text.push(c);
                    }
                    None => {}
                },
                '$' | '`' => {
                    if !self.expansion(c, depth, script) {
                        return self.give_up(script, OPEN);
                    }
                }
                c => {
                    let first = self.word.is_none();
                    let word = self.word.get_or_insert_default();
                    // A pattern at the beginning, or in an option, may become an option.
                    let pattern = matches!(c, '*' | '?' | '[' | '{');
                    word.dynamic |= pattern && (first || word.text.starts_with('-')) && c != '{';
                    word.dynamic |= c == '{' && word.text.starts_with('-');
                    word.text.push(c);
                }
            }
        }
        self.end_command(script);
    }

    fn give_up(&mut self, script: &mut Script, why: &'static str) {
        self.end_command(script);
        script.unclear = Some(why);
    }

    fn skip_if(&mut self, c: char) {
        if self.peek(0) == Some(c) {
            self.at += 1;
        }
    }

    fn quote(&mut self) -> &mut Word {
        let word = self.word.get_or_insert_default();
        word.quoted = true;
        word
    }

    /// A number in front of `>` or `<` is no argument.
    fn end_file_descriptor(&mut self) {
        match &self.word {
            Some(word) if !word.quoted && word.text.bytes().all(|b| b.is_ascii_digit()) => self.word = None,
            _ => self.end_word(),
        }
    }

    fn redirection(&mut self) {
        self.end_file_descriptor();
        self.skip_if('>');
        self.skip_if('|');
        if self.peek(0) == Some('&') {
            // `>&2` names a descriptor; `>& file` a file.
            self.at += 1;
            let digit = self.peek(0).is_some_and(|c| c.is_ascii_digit() || c == '-');
            if digit {
                while self.peek(0).is_some_and(|c| c.is_ascii_digit() || c == '-') {
                    self.at += 1;
                }
                return;
            }
        }
        self.redirect = true;
    }

    /// After `"`: up to the closing one. Says whether there is one.
    fn double_quoted(&mut self, depth: usize, script: &mut Script) -> bool {
        self.quote();
        while let Some(c) = self.peek(0) {
            self.at += 1;
            match c {
                '"' => return true,
                '\\' => {
                    if let Some(next) = self.peek(0) {
                        self.at += 1;
                        let word = self.quote();
                        if !matches!(next, '"' | '\\' | '$' | '`' | '\n') {
                            word.text.push('\\');
                        }
                        word.text.push(next);
                    }
                }
                '$' | '`' => {
                    if !self.expansion(c, depth, script) {
                        return false;
                    }
                }
                c => self.quote().text.push(c),
            }
        }
        false
    }

    /// After `$` or a backtick. What is substituted is read as a line of its own. Says whether it ends.
    fn expansion(&mut self, c: char, depth: usize, script: &mut Script) -> bool {
        if c == '$' && !self.peek(0).is_some_and(|c| c.is_alphanumeric() || "({_?*@#!$-'\"".contains(c)) {
            self.word.get_or_insert_default().text.push('$');
            return true;
        }
        let word = self.word.get_or_insert_default();
        word.dynamic = true;
        word.text.push(c);
        let inner: Option<String> = if c == '`' {
            let end = self.chars[self.at..].iter().position(|c| *c == '`');
            end.map(|end| {
                let inner = self.chars[self.at..self.at + end].iter().collect();
                self.at += end + 1;
                inner
            })
        } else if self.peek(0) == Some('(') {
            self.at += 1;
            let from = self.at;
            let mut open = 1;
            while open > 0 {
                match self.peek(0) {
                    Some('(') => open += 1,
                    Some(')') => open -= 1,
                    // Which parenthesis a quoted one closes isn't worth knowing.
                    Some('\'' | '"' | '\\') => script.unclear = Some("a substitution has quotes in it"),
                    Some(_) => {}
                    None => return false,
                }
                self.at += 1;
            }
            Some(self.chars[from..self.at - 1].iter().collect())
        } else {
            return true;
        };
        match inner {
            Some(inner) => {
                read_into(&inner, depth + 1, script);
                true
            }
            None => false,
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.redirect) {
            if word.dynamic || !SINKS.contains(&word.text.as_str()) {
                self.current.writes.push(word.text);
            }
            return;
        }
        if self.current.words.is_empty() && !word.quoted {
            if KEYWORDS.contains(&word.text.as_str()) || ENDS.contains(&word.text.as_str()) {
                return;
            }
            if let Some((name, _)) = word.text.split_once('=')
                && is_name(name)
            {
                self.current.assignments.push(name.to_owned());
                return;
            }
        } else if self.current.words.is_empty()
            && let Some((name, _)) = word.text.split_once('=')
            && is_name(name)
        {
            // `X="a b"`: the value is quoted, not the name.
            self.current.assignments.push(name.to_owned());
            return;
        }
        self.current.words.push(word);
    }

    fn end_command(&mut self, script: &mut Script) {
        self.end_word();
        self.redirect = false;
        let command = std::mem::take(&mut self.current);
        if command != Command::default() {
            script.commands.push(command);
        }
    }
}

fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('+').unwrap_or(text);
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Word {
    /// A word as it stands.
    pub(super) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), dynamic: false, quoted: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        let script = read(line);
        let commands = script.commands.iter().map(|command| {
            let words =
                command.words.iter().map(|word| format!("{}{}", word.text, if word.dynamic { "?" } else { "" }));
            let writes = command.writes.iter().map(|file| format!(">{file}"));
            let set = command.assignments.iter().map(|name| format!("{name}="));
            set.chain(words).chain(writes).collect::<Vec<_>>().join(" ")
        });
        let commands = commands.collect::<Vec<_>>().join(" ; ");
        script.unclear.map_or(commands.clone(), |why| format!("{commands} !{why}"))
    }

    #[test]
    fn lines_are_read_as_a_shell_reads_them() {
        for (line, expected) in [
            ("ls -l | wc -l", "ls -l ; wc -l"),
            ("a&&b||c;d&e\nf", "a ; b ; c ; d ; e ; f"),
            ("'r'm \"-r\"f x\\ y", "rm -rf x y"),
            ("A=1 B=\"x y\" rm z", "A= B= rm z"),
            ("echo 'a;b' # rm x", "echo a;b"),
            ("echo hi >out 2>&1 >>log 2>/dev/null", "echo hi >out >log"),
            ("x &>all", "x >all"),
            ("x >|forced <in", "x in >forced"),
            ("echo $(rm x) `mv a b`", "rm x ; mv a b ; echo $? `?"),
            ("echo \"$(rm x)\"", "rm x ; echo $?"),
            ("echo $HOME $ '$X'", "echo $HOME? $ $X"),
            ("if true; then rm x; fi", "true ; rm x"),
            ("(cd a; rm b)", "cd a ; rm b"),
            ("{ rm b; }", "rm b"),
            ("diff <(ls a) b", "diff ; ls a ; b"),
            ("find -name*x *", "find -name*x? *?"),
            ("echo \\\n a", "echo a"),
            ("cat <<E\nrm\nE", "cat !it has a here-document"),
            ("echo 'open", "echo !a quote or parenthesis isn't closed"),
            ("echo $(rm", "echo $? !a quote or parenthesis isn't closed"),
        ] {
            assert_eq!(shown(line), expected, "{line:?}");
        }
    }

    #[test]
    fn nothing_makes_it_hang_or_panic() {
        for line in
            ["", "(((((", "$($($($($($($($($($($(", "\\", "$", "`", ">", "<", "&>", "\"\\", "a=", "=", "日本 | é"]
        {
            read(line);
        }
        assert!(read(&"$(".repeat(10_000)).unclear.is_some());
    }
}
