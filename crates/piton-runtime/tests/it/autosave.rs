//! Checkpoints that make themselves: when, named what, and what of them survives.

use std::sync::Arc;
use std::time::Duration;

use piton_log::RunLog;
use piton_runtime::{AgentContext, Autosave, Message, Run, RunError, TriggerPolicy};
use piton_store::{Span, Store};
use piton_testing::{CrashStore, Fault, ManualClock, SeededRandom};
use piton_types::{CheckpointRecord, EntryKind, Timestamp, Trigger, from_value};

use crate::support::{memory, open, process, run_id};

/// What the log says of every checkpoint, oldest first.
async fn records(store: &Arc<dyn Store>) -> Vec<CheckpointRecord> {
    let log = RunLog::open(Arc::clone(store), &run_id()).await.unwrap();
    let mut records = Vec::new();
    for entry in log.entries(Span::ALL).await.unwrap() {
        if entry.kind == EntryKind::Checkpoint {
            records.push(from_value(log.body(&entry).await.unwrap()).unwrap());
        }
    }
    records
}

async fn triggers(store: &Arc<dyn Store>) -> Vec<Trigger> {
    records(store).await.iter().map(|record| record.trigger).collect()
}

async fn say(agent: &mut AgentContext, text: &str) {
    agent.push_message(&Message::user(text)).await.unwrap();
}

async fn texts(store: &Arc<dyn Store>) -> Vec<String> {
    let run = Run::open(&process(store), open()).await.unwrap();
    let agent = AgentContext::open(&run).await.unwrap();
    let messages = agent.messages().await.unwrap();
    messages.iter().map(|message| message.content.as_str().unwrap().to_owned()).collect()
}

/// C2, C4. One thread: what is spawned doesn't begin before this task waits, so the save is in flight for
/// as long as the test likes.
#[tokio::test]
async fn what_is_pending_becomes_one_checkpoint_named_by_the_most_urgent() {
    let store = memory();
    let run = Arc::new(Run::open(&process(&store), open()).await.unwrap());
    let mut agent = AgentContext::open(&run).await.unwrap();
    let mut autosave = Autosave::new(run, TriggerPolicy::default());
    say(&mut agent, "one").await;
    assert_eq!(autosave.happened(Trigger::StepCompleted, "step one", &mut agent).await.unwrap(), None);
    say(&mut agent, "two").await;
    for (trigger, about) in [
        (Trigger::FileChanged, "a file"),
        (Trigger::UserInput, "the user"),
        (Trigger::StepCompleted, "step two"),
        (Trigger::ContextGrowth, "growth"),
    ] {
        assert_eq!(autosave.happened(trigger, about, &mut agent).await.unwrap(), None);
    }
    assert_eq!(triggers(&store).await, [], "nothing is acknowledged yet");
    let newest = autosave.finish(&mut agent).await.unwrap();
    assert_eq!(newest.unwrap().to_string(), "a-run@3");
    assert_eq!(triggers(&store).await, [Trigger::StepCompleted, Trigger::UserInput]);
    let abouts: Vec<_> = records(&store).await.into_iter().map(|record| record.description).collect();
    assert_eq!(abouts, ["step one", "the user"]);
    assert_eq!(texts(&store).await, ["one", "two"]);
}

/// C2, promise 14: the timer counts on a clock that doesn't jump.
#[tokio::test]
async fn the_timer_goes_by_a_clock_that_does_not_jump() {
    let store = memory();
    let clock = Arc::new(ManualClock::default());
    let mut context = process(&store);
    context.clock = Arc::clone(&clock) as _;
    let run = Arc::new(Run::open(&context, open()).await.unwrap());
    let mut agent = AgentContext::open(&run).await.unwrap();
    let mut autosave = Autosave::new(run, TriggerPolicy::default());
    assert_eq!(autosave.due_in(), None, "nothing changed");
    say(&mut agent, "hm").await;
    autosave.changed(&mut agent).await.unwrap();
    assert_eq!(autosave.due_in(), Some(Duration::from_secs(300)));
    clock.set_wall(Timestamp::from_millis(4_000_000_000_000));
    autosave.tick(&mut agent).await.unwrap();
    clock.set_wall(Timestamp::from_millis(0));
    clock.advance_monotonic(Duration::from_secs(299));
    autosave.tick(&mut agent).await.unwrap();
    assert_eq!(autosave.due_in(), Some(Duration::from_secs(1)));
    clock.advance_monotonic(Duration::from_secs(1));
    autosave.tick(&mut agent).await.unwrap();
    clock.advance_monotonic(Duration::from_secs(3000));
    autosave.tick(&mut agent).await.unwrap();
    autosave.finish(&mut agent).await.unwrap();
    assert_eq!(triggers(&store).await, [Trigger::Timer], "and no second one, since nothing changed");
}

#[tokio::test]
async fn growth_by_more_than_ten_kilobytes_is_saved() {
    let store = memory();
    let run = Arc::new(Run::open(&process(&store), open()).await.unwrap());
    let mut agent = AgentContext::open(&run).await.unwrap();
    let policy = TriggerPolicy { settle_ms: 0, ..TriggerPolicy::default() };
    let mut autosave = Autosave::new(run, policy);
    for _ in 0..9 {
        say(&mut agent, &"x".repeat(1000)).await;
        autosave.changed(&mut agent).await.unwrap();
    }
    assert_eq!(triggers(&store).await, []);
    say(&mut agent, &"x".repeat(1000)).await;
    autosave.changed(&mut agent).await.unwrap();
    tokio::task::yield_now().await;
    autosave.tick(&mut agent).await.unwrap();
    assert_eq!(triggers(&store).await, [Trigger::ContextGrowth]);
}

/// C4: edits while a copy is being saved, at the pace of chance, on two threads. What is in the log in the end
/// is what was said, and every acknowledged checkpoint has a beginning of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn editing_while_a_copy_is_saved_loses_nothing() {
    let random = SeededRandom::new(7);
    for _ in 0..8 {
        let store = memory();
        let run = Arc::new(Run::open(&process(&store), open()).await.unwrap());
        let mut agent = AgentContext::open(&run).await.unwrap();
        let mut autosave = Autosave::new(run, TriggerPolicy::default());
        let mut said = Vec::new();
        for n in 0..60 {
            let text = format!("{n} {}", "word ".repeat(random.below(40)));
            say(&mut agent, &text).await;
            said.push(text);
            autosave.changed(&mut agent).await.unwrap();
            match random.below(8) {
                0 => drop(
                    autosave.happened(Trigger::BeforeDangerous, "before: delete x", &mut agent).await.unwrap().unwrap(),
                ),
                1..4 => drop(autosave.happened(Trigger::StepCompleted, "", &mut agent).await.unwrap()),
                4 => tokio::task::yield_now().await,
                _ => {}
            }
        }
        autosave.finish(&mut agent).await.unwrap();
        drop((autosave, agent));
        assert_eq!(texts(&store).await, said);
        let log = RunLog::open(Arc::clone(&store), &run_id()).await.unwrap();
        for entry in log.entries(Span::ALL).await.unwrap().iter().filter(|entry| !entry.parts.is_empty()) {
            let value = log.load(&entry.parts[&"conversation".into()]).await.unwrap();
            let messages = value.field("messages").unwrap().as_list().unwrap();
            assert!(messages.len() <= said.len());
            for (message, said) in messages.iter().zip(&said) {
                assert_eq!(message.field("content").unwrap().as_str(), Some(said.as_str()));
            }
        }
    }
}

/// C4: the store dies at every call. Whatever was acknowledged is there afterwards.
#[tokio::test]
async fn what_was_acknowledged_survives_a_crash_at_any_call() {
    async fn work(store: &Arc<dyn Store>) -> (Option<u32>, Result<(), RunError>) {
        let mut acknowledged = None;
        let result = async {
            let run = Arc::new(Run::open(&process(store), open()).await?);
            let mut agent = AgentContext::open(&run).await?;
            let mut autosave = Autosave::new(run, TriggerPolicy::default());
            for n in 0..4 {
                agent.push_message(&Message::user(format!("{n}"))).await?;
                autosave.happened(Trigger::UserInput, "", &mut agent).await?;
                if n % 2 == 1 {
                    autosave.happened(Trigger::BeforeDangerous, "before: delete x", &mut agent).await?;
                    acknowledged = Some(n + 1);
                }
            }
            autosave.finish(&mut agent).await.map(drop)
        }
        .await;
        (acknowledged, result)
    }
    let counting = Arc::new(CrashStore::new(memory(), Fault::None));
    let store: Arc<dyn Store> = Arc::clone(&counting) as _;
    assert_eq!(work(&store).await.0, Some(4));
    let mut failed = 0;
    for at in 1..=counting.calls() {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let below = memory();
            let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), fault));
            let (acknowledged, result) = work(&crashing).await;
            failed += u32::from(result.is_err());
            let there = u32::try_from(texts(&below).await.len()).unwrap();
            assert!(Some(there) >= acknowledged, "{fault:?}: {there} of {acknowledged:?}");
        }
    }
    assert!(failed > 10, "only {failed} crashes mattered");
}
