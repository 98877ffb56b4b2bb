//! Conversations: one id, many turns, each of them a run that can be killed.

use std::sync::{Arc, Mutex};

use piton_testing::web::{Answer, Web};

use crate::world::{Said, World, wait_until};

/// Counts what it is asked in a conversation variable, and asks a model that remembers.
const CHAT: &str = "
app: {mode: advanced-chat, name: parrot}
kind: app
version: 0.1.5
workflow:
  features: {opening_statement: 'Hello {{who}}, ask me.', suggested_questions: ['What''s up?', Why?]}
  conversation_variables: [{name: asked, value_type: number, value: 0}]
  graph:
    nodes:
    - {id: in, data: {type: start, variables: [{variable: who, type: text-input, required: true}]}}
    - {id: ask, data: {type: llm, model: {provider: openai, name: m}, memory: {window: {enabled: true, size: 10}, query_prompt_template: '{{#sys.query#}}'}, prompt_template: [{role: system, text: You are a parrot.}]}}
    - {id: wait, data: {type: command, command: [sh, -c, 'echo x >> begun; test ! -e hold || sleep 600']}}
    - {id: count, data: {type: assigner, version: '2', items: [{variable_selector: [conversation, asked], input_type: constant, operation: +=, value: 1}]}}
    - {id: say, data: {type: answer, answer: '{{#sys.conversation_id#}} {{#sys.dialogue_count#}} {{#conversation.asked#}} {{#in.who#}}: {{#ask.text#}}'}}
    edges: [{source: in, target: ask}, {source: ask, target: wait}, {source: wait, target: count}, {source: count, target: say}]
";

struct Chat {
    world: World,
    model: Web,
    /// The bodies of the requests.
    heard: Arc<Mutex<Vec<String>>>,
}

impl Chat {
    fn new() -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = Arc::clone(&heard);
        let model = Web::start(move |asked| {
            let mut heard = hearing.lock().unwrap();
            heard.push(asked.body.clone());
            Answer::chat(asked, &[&format!("reply {}", heard.len())])
        });
        let world = World::new();
        world.write("chat.yml", CHAT);
        let config = format!("[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"k\"\n", model.address);
        world.write("models.toml", &config);
        Self { world, model, heard }
    }

    fn ask(&self, arguments: &[&str]) -> Said {
        self.world.piton([&["run", "chat.yml", "--config", "models.toml", "--id", "c1"], arguments].concat())
    }

    fn answer(&self, arguments: &[&str]) -> String {
        answer(&self.ask(arguments))
    }
}

/// What a turn answered.
fn answer(said: &Said) -> String {
    assert_eq!(said.code, Some(0), "{}", said.whole());
    serde_json::from_str::<serde_json::Value>(&said.stdout).unwrap()["answer"].as_str().unwrap().to_owned()
}

/// F13: another question under the same id is the next turn: variables, memory and inputs go on, and turns are counted.
#[test]
fn another_question_is_the_next_turn_of_the_conversation() {
    let chat = Chat::new();
    let first = chat.ask(&["-i", "who=Ada", "first question"]);
    assert_eq!(answer(&first), "c1 1 1 Ada: reply 1");
    for shown in ["Hello Ada, ask me.", "- What's up?", "- Why?"] {
        assert!(first.stderr.contains(shown), "{}", first.whole());
    }
    let second = chat.ask(&["second question"]);
    assert_eq!(answer(&second), "c1 2 2 Ada: reply 2");
    assert!(!second.stderr.contains("ask me"), "it is shown before the first question: {}", second.whole());
    let request = chat.heard.lock().unwrap()[1].clone();
    let places = ["You are a parrot", "first question", "c1 1 1 Ada: reply 1", "second question"]
        .map(|text| request.find(text).unwrap_or_else(|| panic!("{text}: {request}")));
    assert!(places.is_sorted(), "{request}");

    // The same question is the same turn, until it is said which one it is.
    assert_eq!(chat.answer(&["second question"]), "c1 2 2 Ada: reply 2");
    assert_eq!(chat.model.asked(), 2);
    assert_eq!(chat.answer(&["--turn", "3", "second question"]), "c1 3 3 Ada: reply 3");
    assert_eq!(chat.answer(&["--turn", "1", "first question"]), "c1 1 1 Ada: reply 1");
    assert_eq!(chat.ask(&["--turn", "5", "x"]).code, Some(1));

    // Each turn is a run.
    let runs = chat.world.piton(["ls", "--json"]).whole();
    for run in ["\"c1\"", "\"c1-2\"", "\"c1-3\""] {
        assert!(runs.contains(run), "{runs}");
    }
    assert_eq!(chat.answer(&["fourth question"]), "c1 4 4 Ada: reply 4");
}

/// F13: a turn whose process was killed goes on by the same command; another question waits for it, or goes past it once it
/// was given up.
#[test]
fn a_killed_turn_goes_on_by_the_same_command() {
    let chat = Chat::new();
    assert_eq!(chat.answer(&["-i", "who=Ada", "first"]), "c1 1 1 Ada: reply 1");
    chat.world.write("hold", "");
    let arguments = ["run", "chat.yml", "--config", "models.toml", "--id", "c1", "second"];
    let mut child = chat.world.command(arguments).spawn().unwrap();
    wait_until(|| chat.world.lines("begun").len() == 2);
    let refused = chat.ask(&["third"]);
    assert_eq!(refused.code, Some(4), "{}", refused.whole());
    assert!(refused.stderr.contains("piton resume c1-2"), "{}", refused.whole());
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_file(chat.world.work().join("hold")).unwrap();
    assert_eq!(chat.ask(&["third"]).code, Some(4), "it isn't answered yet");
    let resumed = chat.ask(&["second"]);
    assert_eq!(answer(&resumed), "c1 2 2 Ada: reply 2");
    assert_eq!(chat.model.asked(), 2, "what was paid for is kept");
    assert_eq!(chat.answer(&["third"]), "c1 3 3 Ada: reply 3");
}

/// V1: another turn is begun with the configuration of the one before, which is named only once; one that was changed is used
/// when the user says so.
#[test]
fn another_turn_finds_the_configuration_of_the_one_before() {
    let chat = Chat::new();
    assert_eq!(chat.answer(&["-i", "who=Ada", "first"]), "c1 1 1 Ada: reply 1");
    let ask = |more: &[&str]| chat.world.piton([&["run", "chat.yml", "--id", "c1"], more].concat());
    assert_eq!(answer(&ask(&["second"])), "c1 2 2 Ada: reply 2");
    assert_eq!(answer(&ask(&["third"])), "c1 3 3 Ada: reply 3");
    let config = std::fs::read_to_string(chat.world.work().join("models.toml")).unwrap();
    chat.world.write("models.toml", &format!("{config}# changed\n"));
    let refused = ask(&["fourth one"]);
    assert_eq!((refused.code, chat.model.asked()), (Some(4), 3), "{}", refused.whole());
    let again =
        "`piton run chat.yml --id c1 --config [ROOT]/work/models.toml 'fourth one'` goes on with it as it is now";
    assert!(refused.stderr.contains(again), "{}", refused.whole());
    assert_eq!(chat.answer(&["fourth one"]), "c1 4 4 Ada: reply 4");
    // The next ones are begun with that.
    assert_eq!(answer(&ask(&["fifth"])), "c1 5 5 Ada: reply 5");
}
