//! A checkpoint comes before what is dangerous.

use std::sync::Arc;

use piton_agents::danger::{Classifier, DangerSettings, Operation};
use piton_log::RunLog;
use piton_runtime::{AgentContext, Autosave, Context, Message, OpenRun, Run, TriggerPolicy};
use piton_store::{Span, Store};
use piton_store_objects::ObjectStore;
use piton_types::{CheckpointKind, CheckpointRecord, EntryKind, Trigger, from_value};

/// A run, its agent, and a look at the checkpoints in its log.
struct World {
    store: Arc<dyn Store>,
    run: Arc<Run>,
    agent: AgentContext,
}

impl World {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        let run = Arc::new(Run::open(&Context::system(Arc::clone(&store)), OpenRun::default()).await.unwrap());
        let agent = AgentContext::open(&run).await.unwrap();
        Self { store, run, agent }
    }

    async fn records(&self) -> Vec<CheckpointRecord> {
        let log = RunLog::open(Arc::clone(&self.store), self.run.id()).await.unwrap();
        let mut records = Vec::new();
        for entry in log.entries(Span::ALL).await.unwrap() {
            if entry.kind == EntryKind::Checkpoint {
                records.push(from_value(log.body(&entry).await.unwrap()).unwrap());
            }
        }
        records
    }

    async fn triggers(&self) -> Vec<Trigger> {
        self.records().await.iter().map(|record| record.trigger).collect()
    }
}

/// C2: what is dangerous waits until everything so far is durable; what isn't waits for nothing.
#[tokio::test]
async fn a_dangerous_operation_comes_after_a_durable_checkpoint() {
    let list = Classifier::default();
    let mut world = World::new().await;
    let mut autosave = Autosave::new(Arc::clone(&world.run), TriggerPolicy::default());
    world.agent.push_message(&Message::user("tidy up")).await.unwrap();
    autosave.happened(Trigger::UserInput, "tidy up", &mut world.agent).await.unwrap();
    world.agent.push_message(&Message::user("I will remove build/")).await.unwrap();
    assert_eq!(list.save_before(Operation::Shell("ls build"), &mut autosave, &mut world.agent).await.unwrap(), None);
    let checkpoint = list.save_before(Operation::Shell("rm -rf build"), &mut autosave, &mut world.agent).await.unwrap();
    let checkpoint = checkpoint.unwrap();
    assert_eq!(autosave.newest(), Some(&checkpoint));
    assert_eq!(world.triggers().await, [Trigger::UserInput, Trigger::BeforeDangerous]);
    let record = world.records().await.pop().unwrap();
    assert_eq!((record.kind, record.description.as_str()), (CheckpointKind::PreTool, "before: run rm"));
    let log = RunLog::open(Arc::clone(&world.store), world.run.id()).await.unwrap();
    let newest = log.entries(Span::ALL).await.unwrap().into_iter().rfind(|entry| !entry.parts.is_empty()).unwrap();
    let saved = log.load(&newest.parts[&"conversation".into()]).await.unwrap();
    let texts: Vec<_> = saved
        .field("messages")
        .unwrap()
        .as_list()
        .unwrap()
        .iter()
        .map(|message| message.field("content").unwrap().as_str().unwrap().to_owned())
        .collect();
    assert_eq!(texts, ["tidy up", "I will remove build/"]);

    // What is dangerous here, others may call harmless, and the other way round.
    let mut world = World::new().await;
    let settings = DangerSettings {
        harmless_programs: vec!["rm".to_owned()],
        dangerous_programs: vec!["ls".to_owned()],
        ..DangerSettings::default()
    };
    let odd_list = Classifier::new(settings);
    let mut odd = Autosave::new(Arc::clone(&world.run), TriggerPolicy::default());
    assert_eq!(odd_list.save_before(Operation::Shell("rm -rf build"), &mut odd, &mut world.agent).await.unwrap(), None);
    assert!(odd_list.save_before(Operation::Shell("ls build"), &mut odd, &mut world.agent).await.unwrap().is_some());
    assert_eq!(world.triggers().await, [Trigger::BeforeDangerous]);

    let out = Operation::Http { method: "GET", url: "http://example.org" };
    let mut world = World::new().await;
    let mut quiet = Autosave::new(Arc::clone(&world.run), TriggerPolicy::by_hand_only());
    assert_eq!(list.save_before(out, &mut quiet, &mut world.agent).await.unwrap(), None);
    assert_eq!(list.save_before(Operation::Delete("a"), &mut quiet, &mut world.agent).await.unwrap(), None);
    quiet.happened(Trigger::Manual, "now", &mut world.agent).await.unwrap();
    quiet.finish(&mut world.agent).await.unwrap();
    assert_eq!(world.triggers().await, [Trigger::Manual]);
}
