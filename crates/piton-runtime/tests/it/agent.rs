//! The context of an agent: appended cheaply, kept within limits, and paid for once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use piton_runtime::{
    AgentContext, AgentError, Budget, Decision, Extractive, Message, OnExceed, Paid, Run, RunError, SizeLimits,
    Summariser, ToolOutput, TrimPolicy, Trimmed,
};
use piton_store::{Span, Store, StoreError};
use piton_testing::{CrashStore, Fault};
use piton_types::{CheckpointRecord, TokenUsage, Trigger, Value};

use crate::support::{entries, history, memory, open, process, run_id};

fn record() -> CheckpointRecord {
    CheckpointRecord::by(Trigger::StepCompleted)
}

async fn reopen(store: &Arc<dyn Store>) -> (Run, AgentContext) {
    let run = Run::open(&process(store), open()).await.unwrap();
    let agent = AgentContext::open(&run).await.unwrap();
    (run, agent)
}

/// C1: everything that a context has is there in another process.
#[tokio::test]
async fn all_of_it_survives() {
    let store = memory();
    let (run, mut agent) = reopen(&store).await;
    agent.push_message(&Message::user("hello")).await.unwrap();
    let output = ToolOutput { error: Some("denied".into()), ..ToolOutput::new("Bash", "ls", "a b c") };
    agent.push_tool_output(&output).await.unwrap();
    let decision = Decision { what: "use SQLite".into(), why: "no server".into() };
    agent.push_decision(&decision).await.unwrap();
    agent.set_mode(Some("plan")).await.unwrap();
    agent.set_skills(&["search", "write"]).await.unwrap();
    agent.set_variable("a/b", Value::from(1)).await.unwrap();
    agent.set_variable("gone", Value::from(2)).await.unwrap();
    assert!(agent.remove_variable("gone").await.unwrap());
    agent.set_budget(Budget { max_tokens: Some(9), ..Budget::default() }).await.unwrap();
    agent.add_usage(TokenUsage { input: 1, output: 2, cost: 0.5 }).await.unwrap();
    agent.save(&run, &record()).await.unwrap();
    drop(run);

    let (_run, agent) = reopen(&store).await;
    assert_eq!(agent.messages().await.unwrap(), [Message::user("hello")]);
    assert_eq!(agent.tool_outputs().await.unwrap(), [output]);
    assert_eq!(agent.decisions().await.unwrap(), [decision]);
    assert_eq!(agent.mode().await.unwrap().as_deref(), Some("plan"));
    assert_eq!(agent.skills().await.unwrap(), ["search", "write"]);
    assert_eq!(agent.variable("a/b").await.unwrap(), Some(Value::from(1)));
    assert_eq!(agent.variable("gone").await.unwrap(), None);
    let ledger = agent.ledger();
    assert_eq!((ledger.used.total(), ledger.calls, ledger.budget.max_tokens), (3, 1, Some(9)));
    let names: Vec<_> = history(&store).await.checkpoint.clone().unwrap().1.into_keys().map(|name| name.0).collect();
    assert_eq!(names, ["conversation", "usage", "variables"], "no archive before something is in it");
}

/// C4: what an append brings doesn't grow with the conversation.
#[tokio::test]
async fn the_thousandth_message_costs_as_much_as_the_tenth() {
    let store = memory();
    let (run, mut agent) = reopen(&store).await;
    let mut bytes = Vec::new();
    for n in 0..1200 {
        agent.push_message(&Message::user(format!("message {n} {}", "of some length ".repeat(20)))).await.unwrap();
        agent.add_usage(TokenUsage { input: 1, output: 1, cost: 0.0 }).await.unwrap();
        bytes.push(agent.unsaved_bytes());
        agent.save(&run, &record()).await.unwrap();
        assert_eq!(agent.unsaved_bytes(), 0);
    }
    let most = |from: usize, to: usize| *bytes[from..to].iter().max().unwrap();
    let sum = |from: usize, to: usize| bytes[from..to].iter().sum::<u64>();
    let text = 320;
    assert!(most(1000, 1200) < 16 * text, "{} bytes for one message", most(1000, 1200));
    // One more level of the tree, at most.
    assert!(sum(1000, 1200) * 10 <= sum(100, 300) * 15, "{} then {}", sum(100, 300), sum(1000, 1200));
}

/// C3: a value of a megabyte leaves the record: the entry itself stays small.
#[tokio::test]
async fn large_values_are_not_in_the_record() {
    let store = memory();
    let (run, mut agent) = reopen(&store).await;
    let large = (0..40_000).map(|n| format!("line {n}, none like another\n")).collect::<String>();
    agent.push_tool_output(&ToolOutput::new("Bash", "make", large.clone())).await.unwrap();
    let mut described = record().described("x");
    described.metadata.insert("log".into(), Value::from(large.clone()));
    let saved = agent.save(&run, &described).await.unwrap();
    let span = Span { from: saved.seq, to: saved.seq, packs: true, ..Span::ALL };
    let stored = store.read(&run_id(), span).await.unwrap().pop().unwrap();
    assert!(stored.entry.len() < 10_000, "{} bytes", stored.entry.len());
    drop(run);
    let (_run, agent) = reopen(&store).await;
    assert_eq!(agent.tool_outputs().await.unwrap()[0].output, Value::from(large));
}

fn long(n: usize) -> String {
    (0..30).map(|m| format!("Sentence {m} of message {n} says something. ")).collect()
}

/// C3: the last 50 messages and 5 tool outputs stay in full, the full text of the others can still be had, and
/// what was trimmed once isn't touched again.
#[tokio::test]
async fn older_messages_become_summaries_that_lead_to_the_full_text() {
    let store = memory();
    let (run, mut agent) = reopen(&store).await;
    for n in 0..60 {
        agent.push_message(&Message::user(if n == 3 { "short".to_owned() } else { long(n) })).await.unwrap();
    }
    for n in 0..8 {
        agent.push_tool_output(&ToolOutput::new("Bash", "ls", long(n))).await.unwrap();
    }
    let trimmed = agent.trim(&TrimPolicy::default(), &Extractive).await.unwrap();
    assert_eq!(trimmed, Trimmed { messages: 9, tool_outputs: 3 });
    assert_eq!(agent.trim(&TrimPolicy::default(), &Extractive).await.unwrap(), Trimmed::default());
    agent.save(&run, &record()).await.unwrap();
    drop(run);

    let (run, mut agent) = reopen(&store).await;
    let messages = agent.messages().await.unwrap();
    assert_eq!(messages.len(), 60);
    for (n, message) in messages.iter().enumerate() {
        match &message.summarised {
            Some(summarised) => {
                assert!(n < 10 && n != 3, "{n}");
                let text = message.content.as_str().unwrap();
                assert!(text.starts_with("[extract] Sentence 0 of") && text.len() <= 400, "{text}");
                assert_eq!((summarised.by.as_str(), summarised.bytes > 1000), ("extract", true));
                let full = agent.full(&summarised.full).await.unwrap().unwrap();
                assert_eq!(full.field("content").unwrap().as_str(), Some(long(n).as_str()));
            }
            None => assert!(n >= 10 || n == 3, "{n}"),
        }
    }
    let outputs = agent.tool_outputs().await.unwrap();
    assert_eq!(outputs.iter().filter(|output| output.summarised.is_some()).count(), 3);
    assert!(agent.full("blob://zz").await.is_err(), "no hash");
    assert_eq!(agent.full(&format!("blob://{}", "0".repeat(64))).await.unwrap(), None);
    // One more message pushes one more out, and costs that.
    agent.push_message(&Message::user("new")).await.unwrap();
    assert_eq!(agent.trim(&TrimPolicy::default(), &Extractive).await.unwrap().messages, 1);
    assert!(agent.unsaved_bytes() < 20_000, "{}", agent.unsaved_bytes());
    drop(run);
}

struct Broken;

#[async_trait]
impl Summariser for Broken {
    fn name(&self) -> &str {
        "model"
    }

    async fn summarise(&self, _text: &str, _bytes: usize) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        Err("no quota".into())
    }
}

#[tokio::test]
async fn a_summariser_that_fails_is_replaced_and_that_is_said() {
    let store = memory();
    let (_run, mut agent) = reopen(&store).await;
    for n in 0..51 {
        agent.push_message(&Message::user(long(n))).await.unwrap();
    }
    agent.trim(&TrimPolicy::default(), &Broken).await.unwrap();
    let first = agent.messages().await.unwrap().remove(0);
    assert_eq!(first.summarised.unwrap().by, "extract (model failed: no quota)");
}

/// C3: over the limit is a typed error that changes nothing, or the trimming policy, under which no checkpoint
/// brings more than the limit either.
#[tokio::test]
async fn a_checkpoint_keeps_to_its_limit() {
    let store = memory();
    let (run, mut agent) = reopen(&store).await;
    for n in 0..300 {
        agent.push_message(&Message::user(long(n))).await.unwrap();
    }
    let limit = 230_000;
    let mut limits = SizeLimits { checkpoint_bytes: limit, ..SizeLimits::default() };
    assert_eq!((SizeLimits::default().checkpoint_bytes, limits.on_exceed), (5_000_000, OnExceed::Error));
    let before = (entries(&store).await, agent.unsaved_bytes());
    let refused = agent.save_within(&run, &record(), &limits, &Extractive).await;
    assert!(
        matches!(refused, Err(RunError::Store(StoreError::TooLarge { size, limit: 230_000, .. })) if size > 300_000),
        "{refused:?}"
    );
    assert_eq!((entries(&store).await, agent.unsaved_bytes()), before, "nothing was stored or changed");

    limits.on_exceed = OnExceed::Trim;
    agent.save_within(&run, &record(), &limits, &Extractive).await.unwrap();
    let messages = agent.messages().await.unwrap();
    assert!(messages[249].summarised.is_some() && messages[250].summarised.is_none());
    let whole = store.read(&run_id(), Span { packs: true, ..Span::ALL }).await.unwrap();
    assert!(whole.len() > 5, "the archive took several");
    for record in &whole {
        assert!(record.pack.len() as u64 <= limit + 20_000, "{} bytes in entry {}", record.pack.len(), record.seq);
    }
    drop(run);
    let (run, agent) = reopen(&store).await;
    for (n, message) in agent.messages().await.unwrap().iter().enumerate().take(250) {
        let full = agent.full(&message.summarised.as_ref().unwrap().full).await.unwrap().unwrap();
        assert_eq!(full.field("content").unwrap().as_str(), Some(long(n).as_str()));
    }
    // What must stay in full and doesn't fit is an error all the same.
    let (mut agent, small) = (agent, SizeLimits { checkpoint_bytes: 1000, ..limits });
    agent.push_message(&Message::user((0..500).map(|n| format!("{n} ")).collect::<String>())).await.unwrap();
    let refused = agent.save_within(&run, &record(), &small, &Extractive).await;
    assert!(matches!(refused, Err(RunError::Store(StoreError::TooLarge { .. }))), "{refused:?}");
    assert_eq!(agent.message_count().await.unwrap(), 301);
    agent.save(&run, &record()).await.unwrap();
}

fn price() -> TokenUsage {
    TokenUsage { input: 60, output: 40, cost: 0.25 }
}

/// Three turns of an agent, the second of which fails once.
async fn turns(store: &Arc<dyn Store>, made: &AtomicU32, budget: Budget) -> Result<(), AgentError> {
    let run = Run::open(&process(store), open()).await?;
    if run.outcome().is_some() {
        return Ok(());
    }
    let mut agent = AgentContext::open(&run).await?;
    if agent.ledger().budget != budget {
        agent.set_budget(budget).await?;
    }
    for n in 0..3 {
        let path = format!("turn/{n}").parse().unwrap();
        agent
            .paid(&run, &path, n, price(), async |n| {
                made.fetch_add(1, Ordering::Relaxed);
                let result = if made.load(Ordering::Relaxed) == 2 { Err("overloaded") } else { Ok(n * 10) };
                let messages =
                    if result.is_ok() { vec![Message::assistant(format!("answer {n}"))] } else { Vec::new() };
                Paid { result, usage: price(), messages }
            })
            .await?;
    }
    run.complete(()).await?;
    Ok(())
}

/// Usage is recorded in the commit that records the call: crash anywhere, resume until it ends, and the ledger
/// agrees with the log, and both with the world save for the one call that was in flight.
#[tokio::test]
async fn what_a_call_used_is_recorded_with_it_or_not_at_all() {
    let counting = Arc::new(CrashStore::new(memory(), Fault::None));
    let store: Arc<dyn Store> = Arc::clone(&counting) as _;
    let made = AtomicU32::new(0);
    assert!(matches!(turns(&store, &made, Budget::default()).await, Err(AgentError::Run(RunError::Step { .. }))));
    turns(&store, &made, Budget::default()).await.unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 4, "three answers and one failure");
    let mut crashes = 0;
    for at in 1..=counting.calls() {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let below = memory();
            let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), fault));
            let made = AtomicU32::new(0);
            let died = turns(&crashing, &made, Budget::default()).await;
            crashes += u32::from(matches!(died, Err(AgentError::Run(RunError::Store(_)))));
            let mut tries = 0;
            while turns(&below, &made, Budget::default()).await.is_err() {
                tries += 1;
                assert!(tries < 3, "{fault:?}");
            }
            let run = Run::open(&process(&below), open()).await.unwrap();
            let agent = AgentContext::open(&run).await.unwrap();
            let recorded = history(&below).await.steps.len() as u64;
            let made = u64::from(made.load(Ordering::Relaxed));
            assert_eq!(agent.ledger().calls, recorded, "{fault:?}");
            assert!(made == recorded || made == recorded + 1, "{fault:?}: {made} made, {recorded} recorded");
            assert_eq!(agent.messages().await.unwrap().len(), 3, "{fault:?}");
        }
    }
    assert!(crashes > 5, "only {crashes} crashes mattered");
}

/// A budget holds across processes, and the call that would pass it isn't made.
#[tokio::test]
async fn a_budget_holds_across_resumes() {
    let store = memory();
    let made = AtomicU32::new(10);
    let budget = Budget { max_cost: Some(0.6), ..Budget::default() };
    let over = turns(&store, &made, budget).await.unwrap_err();
    assert!(matches!(over, AgentError::OverCost { calls: 2, .. }), "{over}");
    assert_eq!(made.load(Ordering::Relaxed), 12);
    let before = entries(&store).await;
    for _ in 0..3 {
        assert!(matches!(turns(&store, &made, budget).await, Err(AgentError::OverCost { calls: 2, .. })));
    }
    assert_eq!(made.load(Ordering::Relaxed), 12, "what is recorded isn't paid again, what is over isn't paid at all");
    assert_eq!(entries(&store).await, before + 3, "the claims, and nothing else");
    let tokens = Budget { max_tokens: Some(250), ..Budget::default() };
    assert!(matches!(turns(&store, &made, tokens).await, Err(AgentError::OverTokens { used: 200, .. })));
    turns(&store, &made, Budget::default()).await.unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 13);
}
