//! `piton diff`: what differs between the files of two checkpoints, or of one and the folder; with `--state` between
//! their states, value by value; of two runs that are made of steps, what those did.

use piton_app::files;
use piton_app::runs::diff::{diff_runs, diff_states};
use piton_app::views::entry::{DiffView, ValueChange};
use piton_app::views::files::FileDiff;

use crate::arguments::Diff;
use crate::commands::status::change_line;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::cut;
use crate::view::value_line;

pub(crate) async fn execute(session: &Session, arguments: &Diff) -> Result<Exit, Failure> {
    if let (Some(from), Some(to)) = (&arguments.from, &arguments.to) {
        if arguments.state {
            let found = diff_states(session, from, to).await?;
            show_values(session, &found, |from, to| format!("the states of {from} and {to} are the same"))?;
            return Ok(Exit::Done);
        }
        let runs = arguments.paths.is_empty();
        if runs && let Some(found) = diff_runs(session, from, to, arguments.stat).await? {
            show_values(session, &found, |from, to| format!("runs {from} and {to} did the same"))?;
            return Ok(Exit::Done);
        }
    }
    let (from, to) = (arguments.from.as_ref(), arguments.to.as_ref());
    let found = files::diff::diff(session, from, to, &arguments.paths, !arguments.stat).await?;
    let output = &session.output;
    if output.is_json() {
        output.view(&found)?;
        return Ok(Exit::Done);
    }
    let texts: Vec<String> = found.changes.iter().map(|change| file_text(session, change, arguments.stat)).collect();
    if texts.is_empty() {
        output.note("no file differs");
    } else {
        session.paged(&texts.join("\n"))?;
    }
    Ok(Exit::Done)
}

fn show_values(session: &Session, found: &DiffView, same: impl Fn(&str, &str) -> String) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.view(found);
    }
    if found.changes.is_empty() {
        output.note(&same(&found.from, &found.to));
    }
    for change in &found.changes {
        let line = value_change_line(change);
        output.data(&output.width().map_or_else(|| line.clone(), |width| cut(&line, width)))?;
        if output.is_closed() {
            break;
        }
    }
    Ok(())
}

fn value_change_line(change: &ValueChange) -> String {
    let path = clean(&change.path);
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => format!("~ {path}  {} → {}", value_line(old), value_line(new)),
        (None, Some(new)) => format!("+ {path}  {}", value_line(new)),
        (Some(old), None) => format!("- {path}  {}", value_line(old)),
        (None, None) => format!("~ {path}"),
    }
}

pub(crate) fn file_text(session: &Session, file: &FileDiff, stat: bool) -> String {
    let line = format!("{}{}", change_line(&file.change), if file.unattributed { "  (unattributed)" } else { "" });
    let (Some(added), Some(removed)) = (file.added, file.removed) else {
        return format!("{line}{}", if file.is_file { "  (binary or large)" } else { "" });
    };
    if stat {
        return format!("{line}  +{added} -{removed}");
    }
    let mut text = vec![line];
    if let Some((old, new)) = &file.modes {
        text.push(format!("mode {old} → {new}"));
    }
    for line in file.diff.as_deref().unwrap_or_default().lines() {
        let line = clean(line);
        let code = match line.as_bytes().first() {
            Some(b'+') => "32",
            Some(b'-') => "31",
            Some(b'@') => "36",
            _ => "",
        };
        text.push(match session.output.has_colour() && !code.is_empty() {
            true => format!("\x1b[{code}m{line}\x1b[0m"),
            false => line,
        });
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn change(old: Option<Json>, new: Option<Json>) -> ValueChange {
        ValueChange { path: "/variables/a~1b".to_owned(), old, new }
    }

    #[test]
    fn null_is_told_from_nothing() {
        assert_eq!(value_change_line(&change(None, Some(Json::Null))), "+ /variables/a~1b  null");
        let changed = change(Some(json!(1)), Some(json!("\x1b")));
        assert_eq!(value_change_line(&changed), r#"~ /variables/a~1b  1 → "\u001b""#);
        assert_eq!(value_change_line(&change(Some(json!(1)), None)), "- /variables/a~1b  1");
    }
}
