//! Every verb with its help, in the groups and the order of `piton --help`.

use clap::{Command, CommandFactory as _};

use crate::arguments::{AFTER, Arguments, GROUPS};

const WIDTH: usize = 100;

pub(super) fn markdown() -> String {
    let mut root = Arguments::command().term_width(WIDTH);
    root.build();
    let mut text =
        "# Commands\n\n`piton --help` shows the groups, the references and the exit codes; every verb takes \
                    the options at the end of this page.\n"
            .to_owned();
    for line in GROUPS.lines() {
        match line.strip_prefix("  ") {
            None if line.is_empty() => {}
            None => text.push_str(&format!("\n## {}\n", line.trim_end_matches(':'))),
            Some(entry) => {
                let name = entry.split_whitespace().next().unwrap_or_default();
                if let Some(verb) = root.find_subcommand_mut(name) {
                    describe(verb, &format!("piton {name}"), &mut text);
                }
            }
        }
    }
    let options: String = root.render_help().to_string();
    let options = options.split_once("\nOptions:\n").map_or("", |(_, rest)| rest);
    let options = options.split_once("\n\nReferences:").map_or(options, |(options, _)| options);
    text.push_str(&format!("\n## Options of every verb\n\n```text\n{options}\n```\n"));
    let (after, _) = AFTER.split_once("\n\nExamples:").unwrap_or((AFTER, ""));
    text.push_str(&format!("\n## References and exit codes\n\n```text\n{after}\n```\n"));
    text
}

/// A verb and the verbs inside it.
fn describe(verb: &mut Command, name: &str, text: &mut String) {
    // What every verb takes is said once.
    let globals: Vec<_> = verb
        .get_arguments()
        .filter(|argument| argument.is_global_set())
        .map(|argument| argument.get_id().clone())
        .collect();
    let mut shown = verb.clone();
    for id in globals {
        shown = shown.mut_arg(id, |argument| argument.hide(true));
    }
    let help = shown.render_long_help().to_string();
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    text.push_str(&format!("\n### {name}\n\n```text\n{}\n```\n", help.join("\n")));
    for inner in verb.get_subcommands_mut().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set()) {
        let name = format!("{name} {}", inner.get_name());
        describe(inner, &name, text);
    }
}
