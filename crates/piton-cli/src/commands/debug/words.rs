//! The commands of the debugger as people write them, one a line.

use piton_app::debug::{Breakpoint, Command};
use piton_flow::Phase;

use crate::arguments::parse_setting;

/// What `help` says.
pub(super) const HELP: &str = "\
step, s                        to the next side of a node: before it, after it
next, n                        to before the next node
continue, c                    to the next breakpoint
to NODE                        to before this node
break NODE [after] [if COND]   stop there from now on, as in `break check if fetch.status > 299`; alone lists all
on-error [off]                 stop after nodes that fail
clear [NODE]                   no breakpoint there any more; alone clears all
vars [NAME], v                 variables: all, of a node, or one as NODE.VARIABLE
set NODE.VARIABLE=VALUE        VALUE is JSON if it is some, else text
back [STEP|NUMBER], b          before the step that ended last, a step, or an entry of the run's log
where, w                       where the run stands, and the breakpoints
quit, q                        leave the run as it is; `piton debug RUN` goes on with it";

/// What a line says.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Nothing,
    Help,
    Command(Command),
}

/// Reads a line. The error is what is wrong with it.
pub(super) fn read(line: &str) -> Result<Said, String> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let name = (!rest.is_empty()).then(|| rest.to_owned());
    let alone = |command| match rest {
        "" => Ok(Said::Command(command)),
        _ => Err(format!("`{word}` takes nothing behind it")),
    };
    let command = match word {
        "" => return Ok(Said::Nothing),
        // A line of a script that is for people.
        word if word.starts_with('#') => return Ok(Said::Nothing),
        "help" | "h" | "?" => return Ok(Said::Help),
        "step" | "s" => return alone(Command::Step),
        "next" | "n" => return alone(Command::Next),
        "continue" | "c" => return alone(Command::Continue),
        "where" | "w" => return alone(Command::State),
        "quit" | "q" | "exit" => return alone(Command::Quit),
        "break" if rest.is_empty() => Command::State,
        "break" => Command::Break(parse_breakpoint(rest)?),
        "on-error" => match rest {
            "" | "on" => Command::OnError { on: true },
            "off" => Command::OnError { on: false },
            _ => return Err("say `on-error` or `on-error off`".to_owned()),
        },
        "clear" => Command::Clear { node: name },
        "to" => Command::To { node: name.ok_or("say `to NODE`")? },
        "vars" | "v" => Command::Variables { name },
        "set" if rest.is_empty() => return Err("say `set NODE.VARIABLE=VALUE`".to_owned()),
        "set" => Command::Set { variables: [parse_setting(rest)?].into() },
        "back" | "b" => Command::Back { to: name },
        _ => return Err(format!("there is no command {word:?}; `help` lists them")),
    };
    Ok(Said::Command(command))
}

/// A breakpoint as it is written: `NODE`, `NODE after`, `NODE if CONDITION`, or both.
pub(crate) fn parse_breakpoint(text: &str) -> Result<Breakpoint, String> {
    let (place, when) = match text.split_once(" if ") {
        Some((place, when)) => (place, Some(when.parse()?)),
        None => (text, None),
    };
    let mut words = place.split_whitespace();
    let node = words.next().ok_or("the node is missing")?.to_owned();
    let phase = match (words.next(), words.next()) {
        (None | Some("before"), None) => Phase::Before,
        (Some("after"), None) => Phase::After,
        _ => return Err(format!("{text:?} should be NODE, NODE after, or NODE if CONDITION")),
    };
    Ok(Breakpoint { node, phase, when })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_and_what_is_wrong_with_them_is_said() {
        assert_eq!(read("  s "), Ok(Said::Command(Command::Step)));
        assert_eq!(read("# a remark"), Ok(Said::Nothing));
        let at = |node: &str, phase| Breakpoint { node: node.to_owned(), phase, when: None };
        assert_eq!(parse_breakpoint("check after"), Ok(at("check", Phase::After)));
        let Ok(Said::Command(Command::Break(found))) = read("break check after if a.b is not empty") else { panic!() };
        assert_eq!(found.to_string(), "after check if a.b is not empty");
        let set = [("a.b".to_owned(), 5.into())].into();
        assert_eq!(read("set a.b=5"), Ok(Said::Command(Command::Set { variables: set })));
        for wrong in [
            "jump",
            "step 3",
            "to",
            "set",
            "set x",
            "break a b",
            "break a if b",
            "break a if b.c nearly 3",
            "on-error maybe",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        // Every command that there is has its line in the help.
        for word in
            ["step", "next", "continue", "to", "break", "on-error", "clear", "vars", "set", "back", "where", "quit"]
        {
            assert!(HELP.lines().any(|line| line.starts_with(word)), "{word}");
            assert!(!matches!(read(word), Err(error) if error.starts_with("there is no command")), "{word}");
        }
    }
}
