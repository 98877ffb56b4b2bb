//! Which runs a server drives, as files beside its tokens. One that is stopped removes them; what is there when a server
//! starts was driven by one that was killed, and goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_app::place::private;
use piton_app::references::Reference;
use piton_app::runs::answer;
use piton_app::runs::resume::{ResumeRun, prepare};
use piton_app::runs::show::{Shown, show};
use piton_app::{Failure, FailureKind};
use piton_runtime::recovery::CannotAsk;
use piton_types::{RunId, RunStatus};
use serde::{Deserialize, Serialize};

use crate::drives::drive_again;
use crate::server::Server;

/// How often a run is taken up from servers that died: it may be what they die of.
const MOST: u32 = 3;

/// The files of the runs of one folder.
pub(crate) struct Marks {
    folder: PathBuf,
    /// The folder whose runs they are.
    of: String,
}

#[derive(Serialize, Deserialize)]
struct Driven {
    folder: String,
    run: RunId,
    /// How often it was taken up.
    times: u32,
}

/// A run that is driven, until this is dropped.
pub(crate) struct Mark(PathBuf);

impl Drop for Mark {
    fn drop(&mut self) {
        // One that stays is of a run that is over, which the next server sees.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Marks {
    /// Those in a folder of the user's, of runs in another one.
    pub(crate) fn open(folder: &Path, of: &Path) -> Result<Self, Failure> {
        let folder = folder.join("driven");
        private::create(&folder)?;
        Ok(Self { folder, of: of.to_string_lossy().into_owned() })
    }

    /// Notes that a run is driven from now on.
    pub(crate) fn mark(&self, run: &RunId, times: u32) -> Result<Mark, Failure> {
        let name = blake3::hash(format!("{}\0{run}", self.of).as_bytes()).to_hex();
        let path = self.folder.join(&name[..32]);
        let driven = Driven { folder: self.of.clone(), run: run.clone(), times };
        let text = serde_json::to_vec(&driven)
            .map_err(|error| Failure::internal("a name has no JSON form").because(&error))?;
        private::write(&path, &text).map_err(|error| private::cant_write(&path, &error))?;
        Ok(Mark(path))
    }

    /// What servers left that died.
    fn left(&self) -> Vec<(PathBuf, Driven)> {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let read = |path: PathBuf| {
            let driven: Driven = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
            (driven.folder == self.of).then_some((path, driven))
        };
        files.filter_map(|file| read(file.path())).collect()
    }
}

/// Goes on with what servers drove that died.
pub(crate) async fn take_up(server: Arc<Server>) {
    let Some(marks) = &server.marks else { return };
    for (path, Driven { run, times, .. }) in marks.left() {
        let app = &server.app;
        match goes_on(&server, &run, times).await {
            Ok(Found::Goes) => app.note(&format!("run {run} was driven by a server that died, and goes on")),
            Ok(Found::Driven) => {}
            Ok(Found::Rests) => drop(Mark(path)),
            Err(failure) => {
                drop(Mark(path));
                app.warn(&format!("run {run} was driven by a server that died, and doesn't go on: {failure}"));
            }
        }
    }
}

/// How a run was found.
enum Found {
    Goes,
    /// By another process.
    Driven,
    /// Over, paused, or waiting for a person.
    Rests,
}

async fn goes_on(server: &Arc<Server>, run: &RunId, times: u32) -> Result<Found, Failure> {
    let status = match show(&server.app, &Reference::Run(run.clone()), false).await {
        Ok(Shown::Run(whole)) => whole.run.status,
        Ok(_) => return Ok(Found::Rests),
        Err(failure) if failure.kind() == FailureKind::NotFound => return Ok(Found::Rests),
        Err(failure) => return Err(failure),
    };
    if status != RunStatus::InProgress {
        return Ok(Found::Rests);
    }
    if answer::is_driven(&server.app, run).await? {
        return Ok(Found::Driven);
    }
    if times >= MOST {
        return Err(Failure::refused(format!("it was taken up {times} times"))
            .hint(format!("it may be what the servers died of; `piton resume {run}` goes on with it.")));
    }
    let begun = server.audit.begin(server.app.now().to_string(), "resume", "server", "start", run.as_str())?;
    let wanted = ResumeRun { config: server.config.clone(), ..ResumeRun::of(run.clone()) };
    let driven = async {
        let prepared = prepare(&server.app, &wanted, &CannotAsk).await?;
        drive_again(server, prepared, times + 1).await
    };
    let driven = driven.await;
    let (status, detail) = match &driven {
        Ok(_) => (202, None),
        Err(failure) => (409, Some(failure.title().to_owned())),
    };
    server.audit.end(&begun, status, detail.as_deref())?;
    driven.map(|_| Found::Goes)
}
