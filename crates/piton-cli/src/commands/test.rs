//! `piton test`: runs cases as data, without paying a model.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;

use crate::arguments::Test;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use piton_app::cases::{Campaign, Case, Counts, Death, Outcome, Verdict, Victim, find, junit, run_and_die, run_folder};
use piton_app::views::documents::{CaseView, CasesView, KilledView};

pub(crate) async fn execute(session: &Session, arguments: Test) -> Result<Exit, Failure> {
    let mut folders = Vec::new();
    for path in &arguments.cases {
        let found = find(path)
            .map_err(|message| Failure::fixable(format!("can't find cases in {}", path.display())).cause(message))?;
        if found.is_empty() {
            return Err(Failure::fixable(format!("there is no case in {}", path.display()))
                .hint("a case is a folder with `workflow.toml` and `out.toml` (or .yml, .json)."));
        }
        folders.extend(found);
    }
    if let (Some(place), Some(call)) = (&arguments.die_in, arguments.die_at) {
        let death = Death { call, after: arguments.die_after, really: true };
        let base = arguments.base_url.as_deref();
        return die(&folders, arguments.outside, place, death, base).await;
    }
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    // In the order of their names, however many run at once.
    let counts = Arc::new(Counts::default());
    let kill = arguments.kill_everywhere.then(|| {
        // Each case has its share of the budget; as many as there are jobs use theirs at once.
        let share = |seconds| Duration::from_secs(seconds) * u32::try_from(jobs).unwrap_or(1) / folders.len() as u32;
        Campaign { budget: arguments.budget.map(share), seed: arguments.seed, victim: victim(arguments.outside) }
    });
    let work = |folder| run_folder(folder, arguments.outside, kill.clone().map(|plan| (plan, Arc::clone(&counts))));
    let mut ended = futures_util::stream::iter(folders).map(work).buffered(jobs.max(1));
    let mut outcomes = Vec::new();
    while let Some(outcome) = ended.next().await {
        tell(session, &outcome)?;
        outcomes.push(outcome);
    }
    drop(ended);
    if kill.is_some() {
        tell_counts(session, &counts)?;
    }
    if let Some(path) = &arguments.junit {
        let written = std::fs::File::create(path).and_then(|mut file| file.write_all(junit(&outcomes).as_bytes()));
        written.map_err(|error| Failure::fixable(format!("can't write {}", path.display())).because(&error))?;
    }
    summary(session, &outcomes)
}

/// This program, which kills itself.
fn victim(outside: bool) -> Victim {
    Arc::new(move |doomed| {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = std::process::Command::new(program);
        command.arg("test").arg(doomed.case).arg("--die-in").arg(doomed.place);
        command.arg("--die-at").arg(doomed.death.call.to_string());
        if outside {
            command.arg("--outside");
        }
        if doomed.death.after {
            command.arg("--die-after");
        }
        if let Some(base) = doomed.base {
            command.arg("--base-url").arg(base);
        }
        Ok(command)
    })
}

/// What the process does that is to be killed.
async fn die(
    folders: &[PathBuf],
    outside: bool,
    place: &Path,
    death: Death,
    base: Option<&str>,
) -> Result<Exit, Failure> {
    let [folder] = folders else { return Err(Failure::usage("one case dies at a time")) };
    let case = Case::load(folder, outside).map_err(Failure::fixable)?;
    let finished = |step: &str| {
        let mut out = std::io::stdout().lock();
        // If it can't be written, the parent that listened is gone.
        let _ = writeln!(out, "{step}").and_then(|()| out.flush());
    };
    run_and_die(&case, place, death, base, finished).await.map_err(Failure::fixable)?;
    Ok(Exit::Done)
}

fn tell_counts(session: &Session, counts: &Counts) -> Result<(), Failure> {
    let killed = KilledView::from(counts);
    let KilledView {
        in_memory, on_sqlite, by_signal, by_signal_on_files, killed_again, nodes_skipped, left_out, ..
    } = killed;
    if session.output.is_json() {
        session.output.view(&killed)?;
    } else {
        session.output.data(&format!(
            "killed {} times ({in_memory} in process in memory, {on_sqlite} on SQLite, {by_signal} by SIGKILL on SQLite and {by_signal_on_files} on files), {killed_again} of them also while resuming; {nodes_skipped} finished nodes were skipped, {left_out} moments left out",
            killed.killed
        ))?;
    }
    if killed.killed > 0 && nodes_skipped == 0 {
        return Err(Failure::fixable("no resume ever skipped a finished node"));
    }
    Ok(())
}

fn tell(session: &Session, outcome: &Outcome) -> Result<(), Failure> {
    let name = clean(&outcome.name);
    if session.output.is_json() {
        return session.output.view(&CaseView::from(outcome));
    }
    match &outcome.verdict {
        Verdict::Passed => {
            session.output.detail(&format!("ok    {name}"));
            Ok(())
        }
        Verdict::Failed(differences) => {
            let lines: Vec<_> = differences.iter().map(|line| format!("      {}", clean(line))).collect();
            session.output.data(&format!("FAIL  {name}\n{}", lines.join("\n")))
        }
        Verdict::Unsupported(reason) => session.output.data(&format!("skip  {name}: {reason}")),
    }
}

fn summary(session: &Session, outcomes: &[Outcome]) -> Result<Exit, Failure> {
    let view = CasesView::of(outcomes);
    let CasesView { passed, failed, unsupported } = view;
    if session.output.is_json() {
        session.output.view(&view)?;
    } else {
        if unsupported > 0 {
            session.output.data(&format!("{unsupported} unsupported"))?;
        }
        session.output.data(&format!("{passed} passed, {failed} failed"))?;
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::UserFixable })
}
