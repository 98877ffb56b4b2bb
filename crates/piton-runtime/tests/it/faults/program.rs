//! The program: steps in a loop, branches side by side, an effect that is idempotent and one that is probed, a
//! failing step that is retried, a question, a sleep, a child, recorded chance, a saved state. Everything
//! that it does outside leaves a line in a file, written with one call, so that not even a kill tears it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_runtime::{
    Context, EffectFailure, EffectOptions, OpenRun, Probed, RetryPolicy, Run, RunError, Uncertain, Wait, Waits, answer,
};
use piton_types::{BlobId, Durability, PartName, RunStatus, Value};

use crate::support::run_id;

/// The world outside: a file that lines are appended to.
#[derive(Debug, Clone)]
pub(crate) struct Counter(PathBuf);

impl Counter {
    pub(crate) fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    fn append(&self, line: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// How often each line was written.
    pub(crate) fn counts(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for line in std::fs::read_to_string(&self.0).unwrap_or_default().lines() {
            *counts.entry(line.to_owned()).or_insert(0) += 1;
        }
        counts
    }
}

/// A deliberate flaw, for the negative controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// The probe always says that the mail wasn't sent.
    BlindProbe,
    /// Chance isn't recorded.
    NoRecord,
}

/// The steps, by the line that each leaves.
pub(crate) const STEPS: [&str; 9] =
    ["add 1", "add 2", "add 3", "left a", "left b", "right a", "right b", "child a", "flaky"];
/// The effects.
pub(crate) const EFFECTS: [&str; 2] = ["order", "mail"];

fn open() -> OpenRun {
    OpenRun {
        id: Some(run_id()),
        waits: Waits::Leave,
        retry: RetryPolicy { first: Duration::from_millis(1), jitter: 0.0, ..RetryPolicy::default() },
        durability: Durability::Durable,
        // So that an index is crossed every few calls.
        index_every: Some(6),
        ..OpenRun::default()
    }
}

/// Runs the program once, as far as it gets; what it gives in the end doesn't depend on how often that was.
pub(crate) async fn run(context: &Context, counter: &Counter, flaw: Flaw) -> Result<Value, RunError> {
    let mut run = Run::open(context, open()).await?;
    if let Some(output) = run.outcome() {
        return Ok(output);
    }
    let mark = async |line: String| {
        counter.append(&line);
        Ok::<_, String>(line.len() as u64)
    };
    let mut sum = 0_u64;
    for n in 1..=3 {
        sum += run.step("add", format!("add {n}"), mark).await?;
        if n == 2 && run.part(PartName::APP).await?.is_none() {
            run.save(PartName::APP, &Value::from(sum)).await?;
        }
    }
    let (mut left, mut right) = (run.branch("left")?, run.branch("right")?);
    let both = tokio::join!(
        async {
            let a = left.step("same", "left a".to_owned(), mark).await?;
            Ok::<_, RunError>(a + left.step("same", "left b".to_owned(), mark).await?)
        },
        async {
            let a = right.step("same", "right a".to_owned(), mark).await?;
            Ok::<_, RunError>(a + right.step("same", "right b".to_owned(), mark).await?)
        }
    );
    sum += both.0? + both.1?;
    let drawn: [u8; 4] = if flaw == Flaw::NoRecord { draw(context) } else { run.random().await? };
    run.step("keep", drawn, async |drawn| Ok::<_, String>(drawn)).await?;
    let order = EffectOptions { uncertain: Uncertain::CallAgain, ..EffectOptions::default() };
    sum += run
        .effect("order", order, (), async |(), key: BlobId| {
            counter.append(&format!("order {key}"));
            Ok::<_, EffectFailure>(5)
        })
        .await?;
    let sent = |key: BlobId| flaw != Flaw::BlindProbe && counter.counts().contains_key(&format!("mail {key}"));
    let mail = async |(): (), key: BlobId| {
        counter.append(&format!("mail {key}"));
        // Long enough for a kill between the act and its receipt.
        std::thread::sleep(Duration::from_millis(if flaw == Flaw::BlindProbe { 30 } else { 2 }));
        Ok::<_, EffectFailure>(6)
    };
    let look = async |(): (), key: BlobId| Ok(if sent(key) { Probed::Done(6) } else { Probed::NotDone });
    sum += run.effect_with_probe("mail", EffectOptions::default(), (), mail, look).await?;
    sum += run
        .step("flaky", (), async |()| {
            counter.append("flaky");
            if counter.counts()["flaky"] < 3 { Err("not yet") } else { Ok(1) }
        })
        .await?;
    let said: String = run.wait_for("name", Wait::new("Who?")).await?;
    run.sleep(Duration::from_millis(1)).await?;
    sum += run
        .child("child", (), |mut child| async move { Ok(child.step("a", "child a".to_owned(), mark).await?) })
        .await?;
    assert_eq!(run.part(PartName::APP).await?, Some(Value::from(10)), "the state is there");
    let output = Value::map([("sum", Value::from(sum)), ("said", Value::from(said))]);
    run.complete(&output).await?;
    Ok(output)
}

fn draw(context: &Context) -> [u8; 4] {
    let mut bytes = [0; 4];
    context.random.fill(&mut bytes);
    bytes
}

/// What the program gives.
pub(crate) fn expected() -> Value {
    let steps: usize =
        ["add 1", "add 2", "add 3", "left a", "left b", "right a", "right b", "child a"].map(str::len).iter().sum();
    Value::map([("sum", Value::from(steps as u64 + 5 + 6 + 1)), ("said", Value::from("Ada"))])
}

/// Answers the question, if it is asked and has no answer yet.
pub(crate) async fn reply(context: &Context) -> Result<(), RunError> {
    match answer(context, &run_id(), None, "Ada", "a person").await {
        Err(RunError::NotAsked { .. }) => Ok(()),
        other => other.map(drop),
    }
}

/// Drives it until it is over, answering on the way.
pub(crate) async fn finish(context: impl Fn() -> Context, counter: &Counter, flaw: Flaw) -> Result<Value, RunError> {
    for _ in 0..20 {
        match run(&context(), counter, flaw).await {
            Err(RunError::Waiting { .. }) => reply(&context()).await?,
            other => return other,
        }
    }
    panic!("it never ends");
}

/// Holds what happened outside against what the log says; `cuts` is how often the process died.
pub(crate) async fn check(context: &Context, counter: &Counter, cuts: u32) -> Result<(), String> {
    let history = piton_runtime::WholeHistory::of(context, &run_id()).await.map_err(|error| error.to_string())?;
    let counts = counter.counts();
    let mut problems = Vec::new();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            problems.push(what);
        }
    };
    expect(history.state.status() == RunStatus::Completed, format!("it is {}", history.state.status()));
    let mut again = 0;
    for step in STEPS {
        let ran = counts.get(step).copied().unwrap_or(0);
        let wanted = if step == "flaky" { 3 } else { 1 };
        expect(ran >= wanted, format!("{step} ran {ran} times"));
        again += ran.saturating_sub(wanted);
    }
    // Only what was in flight when the process died may run again: one step, or one in each branch.
    expect(again <= 2 * cuts, format!("{again} steps ran again after {cuts} cuts: {counts:?}"));
    for effect in EFFECTS {
        let ledger = history.effects.iter().find(|record| record.intent.path.as_str() == effect);
        let Some(record) = ledger else {
            problems.push(format!("{effect} isn't in the ledger"));
            continue;
        };
        let mut expect = |holds: bool, what: String| {
            if !holds {
                problems.push(what);
            }
        };
        expect(record.status() == piton_runtime::EffectStatus::Done, format!("{effect} is {:?}", record.status()));
        let keys: Vec<_> = counts.iter().filter(|(line, _)| line.starts_with(effect)).collect();
        let line = format!("{effect} {}", record.intent.key);
        expect(keys.len() == 1 && *keys[0].0 == line, format!("{effect} was performed under {keys:?}, not {line}"));
        let times = counts.get(&line).copied().unwrap_or(0);
        let most = if effect == "mail" { 1 } else { 1 + cuts };
        expect(times <= most, format!("{effect} was performed {times} times"));
    }
    let finished: Vec<_> =
        history.steps.iter().filter(|step| step.is_finished()).map(|step| step.path.clone()).collect();
    let mut once = finished.clone();
    once.sort();
    once.dedup();
    if once.len() != finished.len() {
        problems.push(format!("a finished step was recorded twice: {finished:?}"));
    }
    if history.answers.len() != 1 {
        problems.push(format!("{} answers", history.answers.len()));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
