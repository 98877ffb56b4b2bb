//! A run that is opened by its index is the run that its whole log tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::Store;
use piton_store_objects::ObjectStore;
use piton_types::{
    BlobId, Durability, EntryKind, Failed, Holder, InProgress, PartName, Paused, ProgressReport, Queued, RunState, Seq,
    StepPath, Timestamp, TokenUsage, Value, Verification, WaitFor, Waiting,
};
use proptest::prelude::*;

use super::{IndexRecord, Pages};
use crate::core::draft;
use crate::fact::Fact;
use crate::fork::created;
use crate::history::{By, History};
use crate::record::{
    AnswerRecord, ClaimRecord, EffectRecord, EffectStatus, FailureKind, IntentRecord, LogLine, LogRecord, Order,
    Origin, QuestionRecord, ReceiptRecord, RequestRecord, RestoreRecord, StepRecord, Witness,
};
use crate::{Context, Deadline};

const PATHS: [&str; 14] =
    ["a", "b", "a/x", "a/y", "a#2", "a#2/x", "c", "c/d", "c/d/e", "c/d#2", "loop/1/n", "loop/2/n", "loop/3/n", "z"];
const SCOPES: [&str; 7] = ["", "a", "a#2", "c", "c/d", "loop/1", "loop/2"];

fn path(number: u8) -> StepPath {
    PATHS[usize::from(number) % PATHS.len()].parse().unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_000)
}

fn step(context: &Context, at: u8, how: u8, count: u32) -> StepRecord {
    let failed = !how.is_multiple_of(3);
    StepRecord {
        path: path(at),
        index: count,
        place: how.is_multiple_of(2).then_some(u32::from(how) % 5),
        input_hash: None,
        input: Value::Null,
        output: if failed { Value::Null } else { Value::from(count) },
        error: failed.then(|| format!("failure {count}")),
        failure: failed.then_some(if how % 4 == 1 { FailureKind::Timeout } else { FailureKind::Work }),
        retry: (how % 3 == 1).then(|| Deadline::after(context, std::time::Duration::from_secs(u64::from(how)))),
        started_at: now(),
        duration_ms: 1,
        attempt: 1 + count % 3,
        child: None,
        usage: TokenUsage { input: u64::from(at), output: u64::from(how), cost: 0.0 },
        log: Vec::new(),
        tally: if how.is_multiple_of(5) { Value::from(count) } else { Value::Null },
    }
}

fn intent(at: u8, how: u8, count: u32) -> IntentRecord {
    IntentRecord {
        path: path(at),
        place: how.is_multiple_of(2).then_some(u32::from(how) % 5),
        key: BlobId::new([how; 32]),
        input_hash: BlobId::new([1; 32]),
        input: Value::from(count),
        compensation: None,
        attempt: 1 + count % 3,
        call: 0,
    }
}

fn receipt(context: &Context, at: u8, how: u8) -> ReceiptRecord {
    let statuses = [EffectStatus::Done, EffectStatus::NotDone, EffectStatus::Uncertain];
    ReceiptRecord {
        path: path(at),
        key: BlobId::new([how; 32]),
        status: statuses[usize::from(how) % 3],
        output: Value::Null,
        error: how.is_multiple_of(2).then(|| "no".to_owned()),
        retry: (how % 5 == 1).then(|| Deadline::after(context, std::time::Duration::from_secs(1))),
        by: Witness::Call,
        duration_ms: 1,
    }
}

fn question(at: u8, how: u8) -> QuestionRecord {
    let waiting = Waiting { wait_for: WaitFor::UserInput, prompt: "?".to_owned(), timeout_at: None };
    QuestionRecord {
        path: path(at),
        place: how.is_multiple_of(2).then_some(u32::from(how) % 5),
        input_hash: BlobId::new([2; 32]),
        wait_for: WaitFor::UserInput,
        prompt: "?".to_owned(),
        deadline: None,
        held: how.is_multiple_of(3),
        state: RunState::Waiting(waiting),
        token: format!("{}", how % 2),
        form: Value::Null,
    }
}

fn answer(at: u8, how: u8) -> AnswerRecord {
    AnswerRecord {
        path: path(at),
        place: how.is_multiple_of(2).then_some(u32::from(how) % 5),
        input_hash: BlobId::new([2; 32]),
        value: Value::from(u32::from(how)),
        by: "a person".to_owned(),
        at: now(),
        timed_out: false,
    }
}

/// The entry that three numbers stand for.
fn fact(context: &Context, (kind, at, how): (u8, u8, u8), head: Seq) -> Fact {
    let paused = Paused { at: now(), reason: String::new(), resume_instructions: None, checkpoint: None };
    let progress = InProgress {
        current: None,
        step: None,
        iteration: 0,
        started_at: now(),
        last_activity_at: now(),
        context: Value::Null,
        last_progress: None,
    };
    match kind % 16 {
        0..=4 => Fact::Step(Arc::new(step(context, at, how, head.0))),
        5 | 6 => Fact::Intent(intent(at, how, head.0)),
        7 => Fact::Receipt(receipt(context, at, how)),
        8 => Fact::Asked(question(at, how)),
        9 => Fact::Answer(answer(at, how)),
        10 => {
            let step = how.is_multiple_of(2).then(|| path(at).to_string());
            let failed = Failed { step, ..failed() };
            Fact::State(RunState::Failed(failed))
        }
        11 => {
            let (created_at, input) = (now(), Value::Null);
            Fact::State(RunState::Queued(Queued { created_at, priority: 0, estimated_complexity: None, input }))
        }
        12 => {
            let to = Seq(u32::from(at) * 256 + u32::from(how));
            Fact::Restored(RestoreRecord { to: Seq(to.0 % head.next().0), reason: String::new(), epoch: head.0 })
        }
        13 => match how % 3 {
            0 => Fact::Requested(RequestRecord { order: Order::Cancel, reason: String::new() }),
            1 => Fact::Requested(RequestRecord { order: Order::Stop { grace_ms: None }, reason: String::new() }),
            _ => Fact::State(RunState::Paused(paused)),
        },
        14 => {
            let holder = Holder { host: String::new(), boot: String::new(), pid: 1, started: 1 };
            Fact::Claimed(ClaimRecord { holder, claim: u64::from(how), state: RunState::InProgress(progress) })
        }
        _ => Fact::Logged(LogRecord {
            log: vec![LogLine { at: now(), text: "line".to_owned() }],
            progress: Some(ProgressReport::of(format!("so far {how}"))),
            verified: vec![Verification {
                name: format!("check {}", how % 3),
                passed: how.is_multiple_of(2),
                detail: String::new(),
            }],
            files: vec![format!("file-{}", how % 5)],
        }),
    }
}

fn failed() -> Failed {
    Failed {
        at: now(),
        error_type: String::new(),
        message: String::new(),
        trace: None,
        recoverable: true,
        retry_count: 0,
        step: None,
    }
}

/// How an index is made wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// It leaves out the entry before it.
    Late,
    /// It says of one call what is true of another.
    Swapped,
}

async fn index(log: &mut RunLog, flaw: Flaw) {
    let to = if flaw == Flaw::Late { Seq(log.head().seq.0.saturating_sub(1)) } else { log.head().seq };
    let mut record = History::read_to(log, to).await.unwrap().index(log).await.unwrap();
    if flaw == Flaw::Swapped {
        swap(&mut record);
    }
    let run = log.run().clone();
    log.append(draft(&run, &Fact::Indexed(Arc::new(record))).unwrap()).await.unwrap();
}

fn swap(record: &mut IndexRecord) {
    for page in &mut record.pages {
        if let super::Page::Leaf(keys) = page {
            let calls: Vec<_> = (0..keys.len()).filter(|place| keys[*place].0.starts_with('c')).collect();
            if let [first, .., last] = calls[..] {
                let value = keys[first].1.clone();
                keys[first].1 = std::mem::replace(&mut keys[last].1, value);
            }
        }
    }
}

/// Holds what the index says against what the whole log says.
async fn compare(log: &RunLog) -> Result<(), String> {
    let said = |error: piton_store::StoreError| error.to_string();
    let whole = History::read_by(log, log.head().seq, By::WholeLog).await.map_err(said)?;
    let read = History::read(log).await.map_err(said)?;
    let mut differ = Vec::new();
    let mut expect = |same: bool, what: String| {
        if !same {
            differ.push(what);
        }
    };
    expect(read.past == whole.past, format!("{:?}\n{:?}", read.past, whole.past));
    expect(read.line.head() == whole.line.head(), format!("{:?}\n{:?}", read.line.head(), whole.line.head()));
    expect(read.checkpoint == whole.checkpoint, "the checkpoint".to_owned());
    expect(read.questions == whole.questions && read.uncertain == whole.uncertain, "what is open".to_owned());
    expect((read.head, read.updated_at) == (whole.head, whole.updated_at), "the head".to_owned());
    expect(read.damaged_indexes.is_empty(), "no index is damaged".to_owned());
    let mut again = (read.line.clone(), whole.line.clone());
    for path in PATHS {
        let path: StepPath = path.parse().unwrap();
        let first = (read.first_entry(&path).await.map_err(said)?, whole.first_entry(&path).await.map_err(said)?);
        expect(first.0 == first.1, format!("the first entry of {path}: {first:?}"));
        let mut line = read.line.clone();
        line.recall(&path).await.map_err(said)?;
        let known = |line: &crate::line::Line| {
            (
                line.steps.get(&path).cloned(),
                line.order.get(&path).copied(),
                line.effects.get(&path).cloned(),
                line.questions.get(&path).cloned(),
                line.reopened.get(&path).copied(),
            )
        };
        expect(known(&line) == known(&whole.line), format!("{path}: {:?}\n{:?}", known(&line), known(&whole.line)));
    }
    for scope in SCOPES {
        for place in 0..5 {
            let found = match read.line.missing_place(scope, place) {
                Some(base) => base.at(scope, place).await.map_err(said)?,
                None => read.line.at(scope, place).cloned(),
            };
            expect(found.as_ref() == whole.line.at(scope, place), format!("{scope} {place}: {found:?}"));
        }
    }
    // The run is tried again.
    again.0.reopen_run().await.map_err(said)?;
    again.1.reopen_run().await.map_err(said)?;
    for path in PATHS {
        let path: StepPath = path.parse().unwrap();
        again.0.recall(&path).await.map_err(said)?;
        let reopened = (again.0.reopened.get(&path), again.1.reopened.get(&path));
        expect(reopened.0 == reopened.1, format!("{path} is tried again: {reopened:?}"));
    }
    if differ.is_empty() { Ok(()) } else { Err(differ.join("\n")) }
}

/// Writes a log of these entries, with an index after every `every`, and compares after each entry.
async fn check(ops: &[(u8, u8, u8)], every: usize, fork: bool, flaw: Flaw) -> Result<(), String> {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let context = Context::system(Arc::clone(&store));
    let origin = Origin::Fork {
        checkpoint: "parent@3".parse().unwrap(),
        epoch: 2,
        steps: (0..5).map(|n| step(&context, n, n * 3, 7)).collect(),
        effects: vec![
            EffectRecord { intent: intent(6, 4, 1), receipt: Some(receipt(&context, 6, 4)) },
            EffectRecord { intent: intent(7, 4, 1), receipt: None },
        ],
        answers: vec![answer(8, 2)],
    };
    let body = created(now(), Value::from("input"), fork.then_some(&origin)).unwrap();
    let mut log = RunLog::create(store, NewRun { body, ..NewRun::new("a-run".parse().unwrap(), now()) }).await.unwrap();
    let run = log.run().clone();
    for (count, op) in ops.iter().enumerate() {
        let value = Value::from(count as u64);
        if op.0 % 32 == 31 {
            let part = DraftPart {
                name: PartName::from(PartName::APP),
                schema: "test".to_owned(),
                version: 1,
                content: Content::Value(&value),
            };
            let checkpoint = Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, now()) };
            log.append(checkpoint).await.unwrap();
        } else {
            let mut entry = draft(&run, &fact(&context, *op, log.head().seq)).unwrap();
            (entry.at, entry.durability) = (now(), Durability::Relaxed);
            log.append(entry).await.unwrap();
        }
        if count % every == every - 1 {
            index(&mut log, flaw).await;
        }
        compare(&log).await.map_err(|error| format!("after {count}: {error}"))?;
    }
    Ok(())
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn opening_by_the_index_is_folding_the_whole_log(
        ops in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..60),
        every in 1_usize..9,
        fork in any::<bool>(),
    ) {
        block(check(&ops, every, fork, Flaw::None)).map_err(TestCaseError::fail)?;
    }
}

/// The comparison sees an index that is wrong.
#[test]
fn an_index_that_is_wrong_is_noticed() {
    let ops: Vec<_> = (0_u8..40).map(|n| (n % 9, n, n.wrapping_mul(7))).collect();
    assert_eq!(block(check(&ops, 5, false, Flaw::None)), Ok(()));
    assert!(block(check(&ops, 5, false, Flaw::Late)).is_err());
    assert!(block(check(&ops, 5, false, Flaw::Swapped)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The map of pages against a map in memory.
    #[test]
    fn pages_are_a_sorted_map(
        batches in prop::collection::vec(prop::collection::vec((0_u16..600, any::<Option<u8>>()), 1..120), 1..12),
    ) {
        block(async {
            let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
            let body = created(now(), Value::Null, None).unwrap();
            let new = NewRun { body, ..NewRun::new("a-run".parse().unwrap(), now()) };
            let mut log = RunLog::create(store, new).await.unwrap();
            let template = History::read(&log).await.unwrap().index(&log).await.unwrap();
            let (mut root, mut model) = (None, BTreeMap::new());
            for batch in batches {
                let pages = Pages::new(log.reader());
                let changes: BTreeMap<_, _> = batch
                    .into_iter()
                    .map(|(key, value)| (format!("k{key:04}"), value.map(|value| Value::from(u32::from(value)))))
                    .collect();
                for (key, value) in &changes {
                    match value {
                        Some(value) => drop(model.insert(key.clone(), value.clone())),
                        None => drop(model.remove(key)),
                    }
                }
                let (new_root, new) = pages.update(root, changes).await.unwrap();
                let record = IndexRecord { root: new_root, pages: new, ..template.clone() };
                let run = log.run().clone();
                let seq = log.append(draft(&run, &Fact::Indexed(Arc::new(record))).unwrap()).await.unwrap();
                root = new_root.map(|root| root.found_in(seq));
                let pages = Pages::new(log.reader());
                let all = pages.scan(root, "k").await.unwrap();
                assert_eq!(all.into_iter().collect::<BTreeMap<_, _>>(), model);
                for key in (0..600).step_by(37).map(|key| format!("k{key:04}")) {
                    assert_eq!(pages.get(root, &key).await.unwrap().as_ref(), model.get(&key), "{key}");
                }
                let some = pages.scan(root, "k01").await.unwrap();
                assert_eq!(some.len(), model.keys().filter(|key| key.starts_with("k01")).count());
                assert!(some.is_sorted_by_key(|(key, _)| key.clone()));
            }
        });
    }
}

/// A store that gives back the pages of an index with a bit changed: one page, or the whole entry.
mod damage {
    use super::*;
    use crate::{OpenRun, Run};

    fn open() -> OpenRun {
        OpenRun { id: Some("a-run".parse().unwrap()), index_every: Some(4), ..OpenRun::default() }
    }

    async fn item(run: &mut Run, number: u32) -> u32 {
        run.step(&format!("item-{number}"), number, async |number| Ok::<_, String>(number + 1)).await.unwrap()
    }

    /// An index whose pages lie: entries that aren't what it says are found out, and the log is read instead.
    #[tokio::test]
    async fn an_index_that_leads_astray_is_passed_over() {
        let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        let context = Context::system(Arc::clone(&store));
        let mut run = Run::open(&context, open()).await.unwrap();
        for number in 0..20 {
            item(&mut run, number).await;
        }
        drop(run);
        let mut log = RunLog::open(Arc::clone(&store), &"a-run".parse().unwrap()).await.unwrap();
        index(&mut log, Flaw::Swapped).await;
        let history = History::read(&log).await.unwrap();
        assert_eq!(history.totals.finished, 20, "its head is right");
        let mut run = Run::open(&context, open()).await.unwrap();
        for number in 0..20 {
            let work = async |_| -> Result<u32, String> { panic!("item {number} ran again") };
            assert_eq!(run.step(&format!("item-{number}"), number, work).await.unwrap(), number + 1);
        }
        assert_eq!(item(&mut run, 20).await, 21);
    }

    /// An index that can't be read is passed over for an older one, and that is said.
    #[tokio::test]
    async fn an_index_that_cannot_be_read_is_passed_over() {
        let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        let context = Context::system(Arc::clone(&store));
        let mut run = Run::open(&context, open()).await.unwrap();
        for number in 0..20 {
            item(&mut run, number).await;
        }
        drop(run);
        let mut log = RunLog::open(Arc::clone(&store), &"a-run".parse().unwrap()).await.unwrap();
        let broken = Draft { body: Value::from("no index"), ..Draft::new(EntryKind::Indexed, now()) };
        let seq = log.append(broken).await.unwrap();
        let history = History::read(&log).await.unwrap();
        let whole = History::read_by(&log, seq, By::WholeLog).await.unwrap();
        assert_eq!(history.damaged_indexes, [seq]);
        assert_eq!((history.past, history.line.head()), (whole.past, whole.line.head()));
        let mut run = Run::open(&context, open()).await.unwrap();
        let work = async |_| -> Result<u32, String> { panic!("it ran again") };
        assert_eq!(run.step("item-0", 0, work).await.unwrap(), 1);
    }
}
