//! The program under test: it saves a growing conversation, one durable checkpoint after the other, and
//! says so each time. Started again, it goes on where the log ends. And the check of what it leaves.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use piton_log::state::{State, encode};
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::{Log as _, Span, Store, StoreError};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::SeededRandom;
use piton_testing::id;
use piton_types::{Durability, EntryKind, PartName, RunId, Seq, Timestamp, Value};

use crate::child::{command, say};
use crate::support::block_on;

/// The newest entry at the end.
pub(crate) const LAST: u32 = 45;
/// Here the log is closed, which folds it, and opened again.
pub(crate) const FOLDED_AT: u32 = 40;
/// The entry with so much data that it is staged.
pub(crate) const LARGE_AT: u32 = 20;

const HOW: &str = "PITON_TEST_HOW";

/// How many entries a burst has.
const BURST: u32 = 3;

/// How the program goes about it. All but the first three are broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Durable saves; ends at the first error.
    Well,
    /// The same, but it tries three more times after an error.
    Stubborn,
    /// Bursts of relaxed saves with a durable one at the end, after which all of them are acknowledged.
    Burst,
    /// Acknowledges relaxed saves as if they were durable.
    Relaxed,
    /// Acknowledges before it saves.
    Early,
    /// Acknowledges whatever the store answers.
    Deaf,
}

impl How {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Well, "well"),
        (Self::Stubborn, "stubborn"),
        (Self::Burst, "burst"),
        (Self::Relaxed, "relaxed"),
        (Self::Early, "early"),
        (Self::Deaf, "deaf"),
    ];

    fn of_environment() -> Self {
        let name = std::env::var(HOW).unwrap();
        Self::ALL.into_iter().find(|(_, known)| *known == name).unwrap().0
    }

    /// The command that saves so to the store in `folder`.
    pub(crate) fn command(self, folder: &Path) -> Command {
        let mut command = command("save", &folder.join("store.db"));
        command.env(HOW, Self::ALL.into_iter().find(|(how, _)| *how == self).unwrap().1);
        command
    }
}

fn run() -> RunId {
    id("faults")
}

fn at(seq: u32) -> Timestamp {
    Timestamp::from_millis(1_000_000 + i64::from(seq))
}

/// Text that doesn't compress much, the same for the same number.
fn text(seed: u64, length: usize) -> String {
    let random = SeededRandom::new(seed);
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        text.push_str(&format!("{:016x}", random.next_u64()));
    }
    text.truncate(length);
    text
}

fn message(number: u32) -> Value {
    let role = if number.is_multiple_of(2) { "user" } else { "assistant" };
    Value::map([("role", Value::from(role)), ("text", Value::from(text(number.into(), 900)))])
}

fn attachment() -> Value {
    Value::from(text(u64::MAX, 280 << 10))
}

/// The state as of each entry.
fn states() -> &'static [Value] {
    static STATES: OnceLock<Vec<Value>> = OnceLock::new();
    STATES.get_or_init(|| {
        let state = |seq: u32| {
            let messages = (0..2 * seq).map(message).collect();
            let attached = if seq == LARGE_AT { attachment() } else { Value::Null };
            Value::map([
                ("attachment", attached),
                ("messages", Value::List(messages)),
                ("turn", Value::from(i64::from(turn(seq)))),
            ])
        };
        (0..=LAST).map(state).collect()
    })
}

/// Counted now and then only.
const fn turn(seq: u32) -> u32 {
    seq / 5 * 5
}

/// From the state of one entry to that of the next.
async fn advance(state: &mut State, seq: u32) -> Result<(), StoreError> {
    let path = |text: &str| text.parse().unwrap();
    state.extend(&path("/messages"), vec![message(2 * seq - 2), message(2 * seq - 1)]).await?;
    if turn(seq) == seq {
        state.set(&path("/turn"), Value::from(i64::from(seq))).await?;
    }
    if seq == LARGE_AT || seq == LARGE_AT + 1 {
        let attached = if seq == LARGE_AT { attachment() } else { Value::Null };
        state.set(&path("/attachment"), attached).await?;
    }
    Ok(())
}

fn new_run(durability: Durability) -> NewRun {
    NewRun { durability, ..NewRun::new(run(), at(0)) }
}

/// The variant of an error.
pub(crate) fn kind(error: &StoreError) -> String {
    let shown = format!("{error:?}");
    shown.split([' ', '{']).next().unwrap_or_default().to_owned()
}

fn fail(place: &str, error: &StoreError) {
    say(format!("fail {place} {} {error}", kind(error)));
}

/// The role. Nothing that the store answers makes it panic.
pub(crate) async fn save(path: &Path) {
    let store = match SqliteStore::open(path, SqliteOptions::default()) {
        Ok(store) => Arc::new(store),
        Err(error) => return fail("open", &error),
    };
    match save_all(&store, How::of_environment()).await {
        Ok(Some(done)) => match store.close().await {
            Ok(()) => say(done),
            Err(error) => fail("close", &error),
        },
        Ok(None) => {}
        Err((place, error)) => fail(place, &error),
    }
}

type Failed = (&'static str, StoreError);

async fn open_log(store: &Arc<SqliteStore>) -> Result<(RunLog, State), StoreError> {
    let log = RunLog::open(Arc::clone(store) as Arc<dyn Store>, &run()).await?;
    let state = match log.newest_checkpoint().await? {
        Some(entry) => log.state(&entry.parts[&PartName("state".to_owned())]),
        None => State::new(store.hashing(), &states()[0])?,
    };
    Ok((log, state))
}

async fn save_all(store: &Arc<SqliteStore>, how: How) -> Result<Option<String>, Failed> {
    let is_relaxed = |seq: u32| match how {
        How::Relaxed => true,
        How::Burst => !seq.is_multiple_of(BURST),
        _ => false,
    };
    let durability = |seq| if is_relaxed(seq) { Durability::Relaxed } else { Durability::Durable };
    let head = store.head(&run()).await.map_err(|error| ("head", error))?;
    if head.is_none() {
        let created = RunLog::create(Arc::clone(store) as Arc<dyn Store>, new_run(durability(0))).await;
        created.map_err(|error| ("create", error))?;
        say("ack 0 -");
    }
    let (mut log, mut state) = open_log(store).await.map_err(|error| ("log", error))?;
    let (mut chances, mut burst) = (3, Vec::new());
    loop {
        let seq = log.head().seq.0 + 1;
        if seq == FOLDED_AT + 1 {
            log.close().await.map_err(|error| ("fold", error))?;
            (log, state) = open_log(store).await.map_err(|error| ("log", error))?;
        }
        if seq > LAST {
            break;
        }
        let before = (how == How::Stubborn).then(|| state.clone());
        advance(&mut state, seq).await.map_err(|error| ("edit", error))?;
        // Not the state's own, which may be wrong.
        let root = encode(store.hashing(), &states()[seq as usize]).map_err(|error| ("root", error))?.root;
        let acknowledgement = format!("ack {seq} {root}");
        if how == How::Early {
            say(&acknowledgement);
        }
        let part = DraftPart {
            name: PartName("state".to_owned()),
            schema: "test".to_owned(),
            version: 1,
            content: Content::State(&mut state),
        };
        let draft =
            Draft { parts: vec![part], durability: durability(seq), ..Draft::new(EntryKind::Checkpoint, at(seq)) };
        match log.append(draft).await {
            Ok(_) if how == How::Early => {}
            Ok(_) => {
                state.set_source(log.source());
                burst.push(acknowledgement);
                if how != How::Burst || !is_relaxed(seq) {
                    burst.drain(..).for_each(say);
                }
            }
            Err(_) if how == How::Deaf => {
                say(acknowledgement);
                return Ok(None);
            }
            Err(error) => match before.filter(|_| chances > 0) {
                Some(before) => {
                    chances -= 1;
                    fail("append", &error);
                    state = before;
                }
                None => return Err(("append", error)),
            },
        }
    }
    Ok(Some(format!("done {}", state.root())))
}

/// What the program said.
#[derive(Debug, Default, Clone)]
pub(crate) struct Said {
    /// The acknowledged entries and their roots, in order.
    pub(crate) acks: Vec<(u32, String)>,
    /// The root at the end, if it got there.
    pub(crate) done: Option<String>,
    /// Where it failed, the variant of the error, and its text; and how many acknowledgements came before.
    pub(crate) failures: Vec<(String, String, String, usize)>,
}

impl Said {
    pub(crate) fn new(lines: &[String]) -> Self {
        let mut said = Self::default();
        for line in lines {
            let Some((_, line)) = line.split_once("said: ") else { continue };
            let words: Vec<_> = line.splitn(4, ' ').map(str::to_owned).collect();
            match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["ack", seq, root] => said.acks.push((seq.parse().unwrap(), root.to_owned())),
                ["done", root] => said.done = Some(root.to_owned()),
                ["fail", place, kind, text] => {
                    said.failures.push((place.to_owned(), kind.to_owned(), text.to_owned(), said.acks.len()));
                }
                _ => panic!("it said {line:?}"),
            }
        }
        said
    }

    /// Of several programs, one after the other.
    pub(crate) fn newest(&self) -> Option<u32> {
        self.acks.last().map(|(seq, _)| *seq)
    }
}

/// Opens the store and looks at everything: what was acknowledged is there, what is there is readable and
/// right, and nothing is missing in between. Returns the newest entry.
pub(crate) fn verify(folder: &Path, said: &Said) -> Result<Option<u32>, StoreError> {
    let store = SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?;
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(store);
        let lost = |seq: u32| StoreError::NotFound { what: format!("acknowledged entry {seq}") };
        if store.head(&run()).await?.is_none() {
            return said.acks.first().map_or(Ok(None), |(seq, _)| Err(lost(*seq)));
        }
        let log = RunLog::open(Arc::clone(&store), &run()).await?;
        let entries = log.entries(Span::ALL).await?;
        assert!(entries.iter().zip(0..).all(|(entry, seq)| entry.seq == Seq(seq)), "no gaps");
        let name = PartName("state".to_owned());
        for entry in entries.iter().skip(1) {
            let value = log.load(&entry.parts[&name]).await?;
            assert_eq!(value, states()[entry.seq.0 as usize], "entry {}", entry.seq);
        }
        for (seq, root) in &said.acks {
            let entry = entries.get(*seq as usize).ok_or_else(|| lost(*seq))?;
            let found = match entry.parts.get(&name) {
                Some(part) => part.root.to_string(),
                None => "-".to_owned(),
            };
            assert_eq!(found, *root, "the root of entry {seq}");
        }
        let newest = entries.last().map(|entry| entry.seq.0);
        drop(log);
        store.close().await?;
        Ok(newest)
    })
}
