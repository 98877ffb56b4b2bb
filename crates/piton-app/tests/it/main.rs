//! A second shell over `piton-app`, and nothing of the command line: it lists, shows, undoes and answers, on a real
//! store in a folder of its own. What it gets are the same views that `piton --json` prints.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bounded;
mod debugger;
#[cfg(feature = "otlp")]
mod traces;

use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use piton_app::files::Capture;
use piton_app::files::restore::{Conflicts, Restoring, Selected};
use piton_app::files::status::{save, status};
use piton_app::runs::answer::Asked;
use piton_app::runs::drive::{Driving, Prepared};
use piton_app::runs::events::Events;
use piton_app::runs::list::{ListRuns, RunQuery, Which, list};
use piton_app::runs::resume::{self, ResumeRun};
use piton_app::runs::show::show;
use piton_app::runs::start::{self, StartRun};
use piton_app::runs::steer::Cancelling;
use piton_app::views::run::OutcomeView;
use piton_app::{App, Failure, FailureKind, Level, Reference, Shell, Surroundings};
use piton_runtime::Listener;
use piton_runtime::recovery::{Ask, Choice, Question};
use piton_types::Value;
use piton_workspace::{Ask as AskConflict, Conflict, ConflictResolution};
use serde_json::{Value as Json, json};

const ASKING: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: title, data: {type: human-input, prompt: 'Which title?', variables: [{name: title, type: string, required: true}]}}
  - {id: out, data: {type: end, outputs: [{variable: title, value_selector: [title, title]}]}}
edges:
  - {source: in, target: title}
  - {source: title, target: out}
";

/// What a page or a server would have: it remembers what it was told, and asks no person.
#[derive(Default)]
struct Page(Mutex<Vec<(Level, String)>>);

impl Shell for Page {
    fn tell(&self, level: Level, text: &str) {
        self.0.lock().unwrap().push((level, text.to_owned()));
    }
}

/// No person decides anything.
struct NoPerson;

#[async_trait]
impl Ask for NoPerson {
    async fn ask(&self, _question: &Question) -> Option<Choice> {
        None
    }
}

impl AskConflict for NoPerson {
    fn ask(&self, _conflict: &Conflict) -> ConflictResolution {
        ConflictResolution::Refuse
    }
}

fn open(root: &Path) -> App {
    let folder = root.join("work");
    std::fs::create_dir_all(&folder).unwrap();
    let (folder, home) = (folder.canonicalize().unwrap(), root.canonicalize().unwrap().join("home"));
    let surroundings = Surroundings { folder, home: Some(home), ..Surroundings::default() };
    App::new(Arc::new(Page::default()), surroundings, |_| None)
}

fn conflicts() -> Conflicts {
    let (resolution, ask) = (ConflictResolution::Merge, Arc::new(NoPerson));
    Conflicts { resolution, ask, config: None, model: None, unattributed: false, shared: false }
}

fn json(view: &impl serde::Serialize) -> Json {
    serde_json::to_value(view).unwrap()
}

fn all() -> ListRuns {
    ListRuns { which: Which::All, everywhere: false, query: RunQuery { limit: Some(10), ..RunQuery::default() } }
}

#[tokio::test]
async fn it_saves_restores_and_undoes() {
    let root = tempfile::tempdir().unwrap();
    let app = open(root.path());
    let file = app.folder().join("notes.txt");
    let missing = list(&app, all()).await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
    assert_eq!(missing.advice().unwrap().commands()[0].0, ["init"], "a page can make a button of it");

    std::fs::write(&file, "one\n").unwrap();
    let first = save(&app, "first".to_owned(), Capture::default()).await.unwrap();
    std::fs::write(&file, "one\ntwo\n").unwrap();
    let now = status(&app, Capture::default(), false, false).await.unwrap();
    assert_eq!(json(&now)["changes"], json!([{"path": "notes.txt", "kind": "modified"}]));

    let at: Reference = first.id.to_string().parse().unwrap();
    let (restoring, _) =
        Restoring::to(&app, &at, &Selected::default(), &conflicts(), Capture::default()).await.unwrap();
    let previewed = restoring.preview(&app).await.unwrap();
    let plan = json(&previewed.view(&restoring.workspace, usize::MAX).await.unwrap());
    assert_eq!(plan["changes"], json!([{"path": "notes.txt", "action": "write", "added": 0, "removed": 1}]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\n", "a plan changes nothing");
    restoring.carry_out(&app, previewed).await.unwrap();
    restoring.close(&app).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n");

    let undoing = Restoring::undo(&app, None, &conflicts(), Capture::default()).await.unwrap();
    let previewed = undoing.preview(&app).await.unwrap();
    let undone = undoing.carry_out(&app, previewed).await.unwrap();
    undoing.close(&app).await.unwrap();
    assert!(undone.is_undo && undone.files_restored == 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\n");
}

async fn drive(app: &App, ready: Prepared) -> Result<OutcomeView, Failure> {
    let (driving, work) = Driving::prepare(app, ready, Listener::default()).await?;
    let ended = driving.go(app, work).await;
    Ok(OutcomeView::from(&driving.finish(app, ended).await?))
}

fn asking(app: &App, id: &str) -> StartRun {
    let document = app.folder().join("flow.yml");
    std::fs::write(&document, ASKING).unwrap();
    StartRun { id: Some(id.parse().unwrap()), ..StartRun::of(document) }
}

#[tokio::test]
async fn it_starts_lists_shows_answers_and_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let app = open(root.path());
    let outcome = drive(&app, start::prepare(&app, asking(&app, "r")).await.unwrap()).await.unwrap();
    assert_eq!(json(&outcome)["status"], "waiting");
    assert_eq!(json(&outcome)["questions"][0]["fields"][0]["name"], "title");

    let waiting = list(&app, ListRuns { which: Which::Waiting, ..all() }).await.unwrap();
    assert_eq!(json(&waiting)[0]["question"], "Which title?");
    let asked = Asked::find(&app, &"r".parse().unwrap(), None).await.unwrap();
    let wrong = asked.answer(&Value::map([("title", Value::Null)]), "Ada").await.unwrap_err();
    assert_eq!(wrong.kind(), FailureKind::Fixable);
    let asked = Asked::find(&app, &"r".parse().unwrap(), None).await.unwrap();
    let value = asked.of_texts(&[("title".to_owned(), "Bees".to_owned())]);
    let answered = asked.answer(&value, "Ada").await.unwrap();
    assert_eq!((answered.open, answered.by.as_str()), (0, "Ada"));

    let ready = resume::prepare(&app, &ResumeRun::of("r".parse().unwrap()), &NoPerson).await.unwrap();
    let outcome = drive(&app, ready).await.unwrap();
    assert_eq!(json(&outcome)["outputs"], json!({"title": "Bees"}));

    let shown = json(&show(&app, &"r".parse().unwrap(), true).await.unwrap());
    assert_eq!(
        (&shown["status"], &shown["finished_steps"]),
        (&json!("completed"), &shown["steps"].as_array().unwrap().len().into())
    );
    let step = json(&show(&app, &"r/title".parse().unwrap(), false).await.unwrap());
    assert_eq!(step["output"]["title"], "Bees");

    let mut events = Events::of(&app, &"r".parse().unwrap()).await.unwrap();
    let read = events.read().await.unwrap();
    assert_eq!(
        (json(&read)[0]["kind"].clone(), read.len()),
        (json!("created"), read.last().unwrap().entry.seq as usize + 1)
    );
    assert!(events.wait().await.unwrap().is_empty(), "the run is over, so nothing is waited for");
    events.close().await.unwrap();
}

#[tokio::test]
async fn what_a_person_must_agree_to_is_a_plan() {
    let root = tempfile::tempdir().unwrap();
    let app = open(root.path());
    drive(&app, start::prepare(&app, asking(&app, "r")).await.unwrap()).await.unwrap();
    let cancelling = Cancelling::plan(&app, &"r".parse().unwrap()).await.unwrap();
    let plan = json(cancelling.plan.as_ref().unwrap());
    assert_eq!((&plan["plan"], &plan["done"]), (&json!("cancel run r for good"), &json!(false)));
    let shown = json(&show(&app, &"r".parse().unwrap(), false).await.unwrap());
    assert_eq!(shown["status"], "waiting", "a plan changes nothing");
    let (came, _) = cancelling.carry_out("not needed").await.unwrap();
    assert_eq!(json(&came), json!({"id": "r", "run": "r", "status": "cancelled", "request": "done"}));
}
