//! The binary `piton`.
//!
//! A shell around the library: it reads the command line and the environment, chooses the store, and
//! turns what happened into output and an exit code. Data goes to stdout, everything else to stderr.

mod arguments;
mod ask;
mod boxes;
mod commands;
mod consent;
mod drive;
mod failure;
mod given;
mod live;
mod output;
mod pager;
mod questions;
mod session;
mod signals;
mod table;
mod terminal;
mod view;

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use arguments::{Arguments, Global};
use failure::{Exit, Failure};
use given::Given;
use output::{Output, Verbosity};
use piton_app::documents::outside::store_in;
use piton_app::{KeySources, SecretFiles, Surroundings};
use session::Session;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            refuse(&error);
            return if error.use_stderr() { Exit::Usage } else { Exit::Done }.into();
        }
    };
    let Global { json, quiet, verbose, .. } = arguments.global;
    let verbosity = match (quiet, verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    };
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let output = Output::new(json, verbosity, no_colour);
    guarded(|| start(output, arguments)).into()
}

/// Says what is wrong with the command line, or the help that it asks for.
fn refuse(error: &clap::Error) {
    let text = error.render().to_string();
    // Nothing was parsed; behind `--` are the words of another program.
    let is_json = env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if is_json && error.use_stderr() {
        let _ = Output::new(true, Verbosity::Quiet, true)
            .object(&failure::json(&wrong_usage(error.kind(), &text), Exit::Usage));
    }
    let shown = text.trim_end().lines().map(output::clean).collect::<Vec<_>>().join("\n");
    // If it can't be written there is no reader. Help and version go to stdout and are no error.
    let _ = if shown == text.trim_end() {
        error.print()
    } else {
        // What was given is repeated, and must not control the terminal.
        writeln!(std::io::stderr(), "{shown}")
    };
}

/// What clap says, as other failures say it: its first lines are the message, the rest is the hint.
fn wrong_usage(kind: ErrorKind, text: &str) -> Failure {
    if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("the verb is missing").hint("`--help` shows what there is.");
    }
    let (message, hint) = text.split_once("\n\n").unwrap_or((text, ""));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = words(message);
    let failure = Failure::usage(message.strip_prefix("error: ").unwrap_or(&message));
    let hint: Vec<_> = hint.lines().map(words).filter(|line| !line.is_empty()).collect();
    if hint.is_empty() { failure } else { failure.hint(hint.join("\n")) }
}

/// A panic is a fault of ours, and the exit code says so.
fn guarded(work: impl FnOnce() -> Exit) -> Exit {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        usual(info);
        Output::new(false, Verbosity::Normal, true).failure(&Failure::internal("piton has panicked"));
    }));
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or(Exit::Internal)
}

fn start(output: Output, arguments: Arguments) -> Exit {
    let (folder, key_file) = (arguments.global.folder.clone(), arguments.global.key_file.clone());
    let surroundings = match surroundings(arguments.global, arguments.verb.config()) {
        Ok(surroundings) => surroundings,
        Err(failure) => {
            return output.failure(&failure);
        }
    };
    let surroundings = if arguments.verb.is_of_this_folder() { surroundings } else { surroundings.of_owner() };
    output.name_commands_with(Given::new(folder.as_deref(), surroundings.said().as_deref(), key_file.as_deref()));
    let session = Session::new(output, surroundings, |name| env::var_os(name));
    let workers = if arguments.verb.drives() { 2 } else { 1 };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::fixable("the system gives no threads").because(&error);
            return session.output.failure(&failure);
        }
    };
    let exit = runtime
        .block_on(commands::execute(&session, arguments.verb))
        .unwrap_or_else(|failure| session.output.failure(&failure));
    // What still runs was given up by the command, which doesn't wait for it.
    runtime.shutdown_background();
    exit
}

/// The one place where the environment is read.
fn surroundings(global: Global, config: Option<&Path>) -> Result<Surroundings, Failure> {
    if let Some(folder) = &global.folder {
        env::set_current_dir(folder)
            .map_err(|error| Failure::fixable(format!("can't work in {}", folder.display())).because(&error))?;
    }
    let folder = env::current_dir().and_then(|folder| folder.canonicalize()).map_err(|error| {
        Failure::fixable("the working folder can't be found")
            .because(&error)
            .hint("it may have been deleted: `cd` out of it.")
    })?;
    let variable = match env::var_os("PITON_STORE").map(OsString::into_string) {
        None => None,
        Some(Ok(url)) => Some(url),
        Some(Err(_)) => return Err(Failure::usage("PITON_STORE is not Unicode")),
    };
    let budget = match env::var("PITON_BUDGET") {
        Ok(text) if !text.is_empty() => {
            Some(text.parse().map_err(|_| Failure::usage("PITON_BUDGET is not a number of bytes"))?)
        }
        _ => None,
    };
    let secrets = match env::var("PITON_SECRETS").as_deref() {
        Err(_) | Ok("") => None,
        Ok("capture") => Some(SecretFiles::Capture),
        Ok("report") => Some(SecretFiles::Report),
        Ok("exclude") => Some(SecretFiles::Exclude),
        Ok(_) => return Err(Failure::usage("PITON_SECRETS is capture, report or exclude")),
    };
    let path = |name| env::var_os(name).map(PathBuf::from);
    let (state_home, home) = (path("XDG_STATE_HOME"), path("HOME"));
    let keys = KeySources {
        option: global.key_file,
        file: path("PITON_KEY_FILE"),
        command: env::var_os("PITON_KEY_COMMAND"),
        passphrase: env::var_os("PITON_PASSPHRASE"),
    };
    let configured = match config {
        Some(file) => store_in(file, |name| env::var(name).ok())?,
        None => None,
    };
    let (option, below) = (global.store, PathBuf::new());
    Ok(Surroundings { option, configured, variable, state_home, home, folder, below, budget, keys, secrets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_our_fault() {
        assert_eq!(guarded(|| panic!("on purpose")), Exit::Internal);
        let _ = panic::take_hook();
        assert_eq!(guarded(|| Exit::Waiting), Exit::Waiting);
        let _ = panic::take_hook();
    }
}
