//! `piton test --kill-everywhere`: each case is killed at every call of its store and gone on with, and must come to
//! what it comes to when nothing kills it (promise 15).
//!
//! Three ways to die: in process, on a store in memory and on SQLite (whatever the process held is dropped, the store
//! is opened again), and by SIGKILL of a process of its own, on SQLite and on the file store, wherever an entry is added
//! to the log. Every other resume is killed as well, at a call that the seed chooses, and gone on with once more. The case's HTTP server
//! lives in this process, survives, and answers a key that it knows as before. What a dead process told as finished may
//! not begin again (promise 10).

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use piton_store::Store;
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_store_sqlite::{SqliteOptions, SqliteStore};

use super::case::Case;
use super::durable::{Attempt, Driver, drive};
use super::dying::{Death, DyingStore};
use super::http::MockHttp;
use super::run::{Ended, Outcome, Verdict, differences, start_patient_mock, unsupported};
use super::seen::Seen;

/// How long a process may take that is to be killed.
const MAX_TIME: Duration = Duration::from_secs(120);

/// How a case dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Memory,
    Sqlite,
    Signal,
    SignalOnFiles,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "in process, in memory",
            Self::Sqlite => "in process, on SQLite",
            Self::Signal => "by SIGKILL, on SQLite",
            Self::SignalOnFiles => "by SIGKILL, on files",
        }
    }

    /// The name of a store that a case dies on.
    const fn ending(self) -> &'static str {
        match self {
            Self::SignalOnFiles => "files",
            _ => DATABASE,
        }
    }
}

/// What a store in SQLite is called; another is one of files.
const DATABASE: &str = "db";

/// A moment at which a case is killed.
#[derive(Debug, Clone, Copy)]
struct Moment {
    way: Way,
    call: u64,
    after: bool,
    /// The call at which the resume is killed too.
    again: Option<u64>,
}

/// What was done, for the summary.
#[derive(Debug, Default)]
pub struct Counts {
    /// Deaths in process, on a store in memory.
    pub memory: AtomicU64,
    /// Deaths in process, on SQLite.
    pub sqlite: AtomicU64,
    /// Deaths by SIGKILL, on SQLite.
    pub signals: AtomicU64,
    /// Deaths by SIGKILL, on the file store.
    pub signals_on_files: AtomicU64,
    /// Resumes that were killed too.
    pub again: AtomicU64,
    /// Moments that the budget had no time for.
    pub left_out: AtomicU64,
    /// Finished nodes that a resume didn't run again.
    pub skipped: AtomicU64,
}

impl Counts {
    /// All deaths.
    pub fn killed(&self) -> u64 {
        let ways = [&self.memory, &self.sqlite, &self.signals, &self.signals_on_files];
        ways.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn count(&self, way: Way) {
        let count = match way {
            Way::Memory => &self.memory,
            Way::Sqlite => &self.sqlite,
            Way::Signal => &self.signals,
            Way::SignalOnFiles => &self.signals_on_files,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts a process that calls [`run_and_die`] with what it is given, and says each step that finished on a line of its
/// standard output.
pub type Victim = Arc<dyn Fn(&Doomed<'_>) -> Result<Command, String> + Send + Sync>;

/// What a process that is to be killed is given.
#[derive(Debug)]
pub struct Doomed<'a> {
    /// The folder of the case.
    pub case: &'a Path,
    /// Where its store is.
    pub place: &'a Path,
    /// When it dies.
    pub death: Death,
    /// The address of the case's HTTP server.
    pub base: Option<&'a str>,
}

/// How much is done.
#[derive(Clone)]
pub struct Campaign {
    /// How a process is started that is to be killed.
    pub victim: Victim,
    /// How long one case may take.
    pub budget: Option<Duration>,
    /// Chooses what is done first, and where resumes are killed.
    pub seed: u64,
}

/// Kills a case everywhere.
pub async fn kill_everywhere(case: Case, plan: &Campaign, counts: &Counts) -> Outcome {
    let (began, name) = (Instant::now(), case.name.clone());
    let in_acts = || case.acts.is_some().then(|| "it is played in acts, each of which ends by itself".to_owned());
    let debugged =
        || case.debug.is_some().then(|| "a script steps through it, which a resume would begin again".to_owned());
    let verdict = match unsupported(&case).or_else(in_acts).or_else(debugged) {
        Some(reason) => Verdict::Unsupported(reason),
        None => match campaign(&case, plan, counts).await {
            Ok(found) if found.is_empty() => Verdict::Passed,
            Ok(found) => Verdict::Failed(found),
            Err(broken) => Verdict::Failed(vec![broken]),
        },
    };
    Outcome { name, verdict, duration: began.elapsed() }
}

/// What a run comes to that isn't killed, and which calls it makes.
struct Whole {
    ended: Ended,
    calls: u64,
    appends: Vec<u64>,
}

async fn whole(case: &Case, store: Arc<dyn Store>) -> Result<Whole, String> {
    let mock = start_patient_mock(case).await?;
    let base = mock.as_ref().map(MockHttp::url);
    let store = Arc::new(DyingStore::new(store, Death::NEVER));
    let attempt = drive(case, base.as_deref(), Arc::clone(&store) as _, Driver::Mortal, &Seen::default()).await?;
    let Attempt::Ended(ended) = attempt else { return Err("it died although it wasn't killed".to_owned()) };
    Ok(Whole { ended, calls: store.calls(), appends: store.appends() })
}

async fn campaign(case: &Case, plan: &Campaign, counts: &Counts) -> Result<Vec<String>, String> {
    let began = Instant::now();
    let memory = whole(case, Arc::new(ObjectStore::in_memory())).await?;
    let found = differences(case, &memory.ended);
    if !found.is_empty() {
        return Ok(found);
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let sqlite = whole(case, open(&folder.path().join("whole.db"))?).await?;
    // What has time or chance in it differs from itself; then only what the case expects counts.
    let is_repeatable = memory.ended == sqlite.ended;
    let files = whole(case, open(&folder.path().join("whole.files"))?).await?;
    let moments = moments(&memory, &sqlite, &files, plan.seed);
    let (mut done, mut skipped) = (0, 0);
    for (number, moment) in moments.iter().enumerate() {
        if plan.budget.is_some_and(|budget| began.elapsed() >= budget) {
            counts.left_out.fetch_add((moments.len() - number) as u64, Ordering::Relaxed);
            break;
        }
        let place = folder.path().join(format!("{number}.{}", moment.way.ending()));
        let seen = Seen::default();
        let ended = one(case, *moment, &place, &seen, &plan.victim).await;
        let ended = ended.map_err(|error| format!("killed {}: {error}", told(*moment)))?;
        let mut found = differences(case, &ended);
        let again = seen.again();
        if !again.is_empty() {
            found.push(format!("told as finished, and run again: {}", again.join(", ")));
        }
        skipped += seen.skipped();
        if found.is_empty() && is_repeatable && ended != memory.ended {
            found.push(format!("expected {:?}, got {ended:?}", memory.ended));
        }
        if !found.is_empty() {
            found.insert(0, format!("killed {}:", told(*moment)));
            return Ok(found);
        }
        done += 1;
        counts.count(moment.way);
        counts.again.fetch_add(u64::from(moment.again.is_some()), Ordering::Relaxed);
        // What can't be removed goes with the folder.
        let _ = std::fs::remove_dir_all(&place);
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("{number}.{DATABASE}{ending}")));
        }
    }
    counts.skipped.fetch_add(skipped, Ordering::Relaxed);
    // Created, claimed, the first node: then there is something to skip.
    if done == moments.len() && memory.appends.len() > 4 && skipped == 0 {
        return Ok(vec!["no resume ever skipped a finished node".to_owned()]);
    }
    Ok(Vec::new())
}

fn told(moment: Moment) -> String {
    let Moment { way, call, after, again } = moment;
    let again = again.map(|call| format!(", and again at call {call} of the resume")).unwrap_or_default();
    format!("{} {} call {call}{again}", way.name(), if after { "after" } else { "before" })
}

fn open(place: &Path) -> Result<Arc<dyn Store>, String> {
    if place.extension().is_none_or(|ending| ending != DATABASE) {
        let store = ObjectStore::in_folder(place, &FolderOptions::default());
        return Ok(Arc::new(store.map_err(|error| error.to_string())?));
    }
    let store = SqliteStore::open(place, SqliteOptions::default().with_create(true));
    Ok(Arc::new(store.map_err(|error| error.to_string())?))
}

/// Every moment, in an order that the seed chooses: what a budget cuts off is another part each time.
fn moments(memory: &Whole, sqlite: &Whole, files: &Whole, seed: u64) -> Vec<Moment> {
    let mut chance = Chance(seed | 1);
    let ways = [
        (Way::Memory, (1..=memory.calls).collect::<Vec<_>>()),
        (Way::Sqlite, (1..=sqlite.calls).collect()),
        (Way::Signal, sqlite.appends.clone()),
        (Way::SignalOnFiles, files.appends.clone()),
    ];
    let mut moments = Vec::new();
    for (way, calls) in ways {
        for call in calls {
            for after in [false, true] {
                let in_process = matches!(way, Way::Memory | Way::Sqlite);
                let again = (in_process && chance.below(2) == 0).then(|| 1 + chance.below(memory.calls));
                moments.push(Moment { way, call, after, again });
            }
        }
    }
    for last in (1..moments.len()).rev() {
        let other = usize::try_from(chance.below(last as u64 + 1)).unwrap_or(0);
        moments.swap(last, other);
    }
    moments
}

/// The case, killed at a moment and gone on with.
async fn one(case: &Case, moment: Moment, place: &Path, seen: &Seen, victim: &Victim) -> Result<Ended, String> {
    let mock = start_patient_mock(case).await?;
    let base = mock.as_ref().map(MockHttp::url);
    let base = base.as_deref();
    let death = Death { call: moment.call, after: moment.after, really: false };
    let memory: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    // A store that a dead process left is opened anew by the next.
    let reopen = || if moment.way == Way::Memory { Ok(Arc::clone(&memory)) } else { open(place) };
    let mut deaths = vec![];
    match moment.way {
        Way::Signal | Way::SignalOnFiles => {
            die(case, moment, place, base, victim).await?.lines().for_each(|step| seen.finished(step));
        }
        Way::Memory | Way::Sqlite => deaths.push(death),
    }
    deaths.extend(moment.again.map(|call| Death { call, after: false, really: false }));
    for death in deaths {
        let store = Arc::new(DyingStore::new(reopen()?, death));
        drive(case, base, store, Driver::Mortal, seen).await?;
    }
    let store = reopen()?;
    match drive(case, base, store, Driver::This, seen).await? {
        Attempt::Ended(ended) => Ok(ended),
        Attempt::Died(why) => Err(format!("it can't be gone on with: {why}")),
    }
}

/// Runs the case in a process of its own, which kills itself; gives what it said before that.
async fn die(case: &Case, moment: Moment, place: &Path, base: Option<&str>, victim: &Victim) -> Result<String, String> {
    let death = Death { call: moment.call, after: moment.after, really: true };
    let mut command = tokio::process::Command::from(victim(&Doomed { case: &case.folder, place, death, base })?);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = tokio::time::timeout(MAX_TIME, command.output()).await;
    let ended = ended.map_err(|_| "the process to be killed took too long".to_owned())?;
    let ended = ended.map_err(|error| format!("the process to be killed can't be started: {error}"))?;
    // By the signal, or to its end if it made fewer calls than the run before.
    match (std::os::unix::process::ExitStatusExt::signal(&ended.status), ended.status.code()) {
        (Some(9), _) | (_, Some(0)) => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        _ => Err(format!(
            "the process to be killed ended with {}: {}",
            ended.status,
            String::from_utf8_lossy(&ended.stderr)
        )),
    }
}

/// What the process does that is to be killed. `finished` is told each step that finished, at once.
pub async fn run_and_die(
    case: &Case,
    place: &Path,
    death: Death,
    base: Option<&str>,
    finished: impl Fn(&str) + Send + 'static,
) -> Result<(), String> {
    let store = Arc::new(DyingStore::new(open(place)?, death));
    drive(case, base, store, Driver::This, &Seen::telling(finished)).await.map(drop)
}

/// A sequence that follows from its seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> Case {
        Case::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name), true).unwrap()
    }

    /// The negative control: a resume that finds nothing of what was done is noticed by what it skips, which is
    /// nothing, although it comes to the same.
    #[tokio::test]
    async fn a_store_that_forgets_would_be_noticed() {
        let case = case("branch_and_join");
        let mock = start_patient_mock(&case).await.unwrap();
        let base = mock.as_ref().map(MockHttp::url);
        let whole = whole(&case, Arc::new(ObjectStore::in_memory())).await.unwrap();
        let seen = Seen::default();
        for at in 1..=whole.calls {
            let death = Death { call: at, after: true, really: false };
            let dying = Arc::new(DyingStore::new(Arc::new(ObjectStore::in_memory()), death));
            drive(&case, base.as_deref(), dying, Driver::Mortal, &seen).await.unwrap();
            let empty = Arc::new(ObjectStore::in_memory());
            drive(&case, base.as_deref(), empty, Driver::Mortal, &seen).await.unwrap();
        }
        assert_eq!(seen.skipped(), 0);
        assert!(!seen.again().is_empty(), "what had been told as finished ran again");
        let kept = Seen::default();
        let no_victim: Victim = Arc::new(|_| Err("no process is needed".to_owned()));
        let moment = Moment { way: Way::Memory, call: whole.calls - 2, after: true, again: None };
        one(&case, moment, Path::new("unused"), &kept, &no_victim).await.unwrap();
        assert!(kept.skipped() > 0, "and one that remembers skips");
        assert!(kept.again().is_empty(), "and repeats nothing");
    }

    #[test]
    fn the_seed_decides_the_order() {
        let ended = Ended::failed(&"x");
        let whole = Whole { ended, calls: 9, appends: vec![2, 4] };
        let order = |seed| {
            let moments = moments(&whole, &whole, &whole, seed);
            moments.iter().map(|moment| told(*moment)).collect::<Vec<_>>()
        };
        assert_eq!(order(1).len(), 2 * (9 + 9 + 2 + 2));
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }
}
