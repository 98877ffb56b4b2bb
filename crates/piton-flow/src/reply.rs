//! Answers while they are being made. A piece of text that a node streams is told at once if the answer
//! that shows it has come to that place; else when it has. Answers follow one another in the order in
//! which they can run, and an answer that a branch may still pass over waits for the branch.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use piton_types::Event;

use crate::engine::Host;
use crate::graph::Graph;
use crate::node::Exits;
use crate::outside::Outside;
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::settings::OnError;
use crate::value::to_text;

/// A text with variables in it, as an answer has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub(crate) parts: Vec<Part>,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Variable(Selector),
}

impl Reply {
    /// Reads a text. Whatever isn't a reference is text, also braces.
    pub(crate) fn parse(source: &str) -> Self {
        let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), source);
        while let Some((before, after)) = rest.split_once("{{#") {
            text.push_str(before);
            let found = after.split_once("#}}").and_then(|(inside, behind)| Some((reference(inside)?, behind)));
            match found {
                Some((selector, behind)) => {
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(Part::Variable(selector));
                    rest = behind;
                }
                None => {
                    text.push_str("{{#");
                    rest = after;
                }
            }
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Self { parts }
    }

    /// The variables that it names.
    pub(crate) fn references(&self) -> impl Iterator<Item = &Selector> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(selector) => Some(selector),
            Part::Text(_) => None,
        })
    }

    /// The whole text. A variable that isn't there is empty.
    pub(crate) fn render(&self, pool: &VariablePool) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Variable(selector) => {
                    text.push_str(&pool.find(selector).map(to_text).unwrap_or_default());
                }
            }
        }
        text
    }

    /// The variables that aren't there.
    pub(crate) fn missing(&self, pool: &VariablePool) -> Option<&Selector> {
        self.references().find(|selector| pool.find(selector).is_none())
    }
}

/// `node.variable.key`.
fn reference(inside: &str) -> Option<Selector> {
    let words: Vec<String> = inside.trim().split('.').map(str::to_owned).collect();
    let is_word =
        |word: &String| !word.is_empty() && !word.contains(['{', '}', '#']) && !word.chars().any(char::is_control);
    if !words.iter().all(is_word) {
        return None;
    }
    Selector::new(words).ok()
}

/// The answers of a graph that runs.
#[derive(Debug)]
pub(crate) struct Replies(Mutex<State>);

#[derive(Debug)]
struct State {
    answers: Vec<Answer>,
    /// What was streamed so far, by node and variable, of those that an answer shows.
    streamed: HashMap<(String, String), String>,
    ended: Vec<bool>,
    /// The end of what was told of an answer, if it may be the beginning of a secret.
    held: HashMap<piton_types::StepPath, String>,
}

/// A piece of an answer.
struct Told {
    step: piton_types::StepPath,
    text: String,
    /// Nothing follows.
    over: bool,
}

#[derive(Debug)]
struct Answer {
    node: usize,
    step: piton_types::StepPath,
    parts: Vec<Part>,
    /// The part that is being told, and how many bytes of it were.
    place: usize,
    told: usize,
    /// Branches that may pass it over.
    branches: Vec<usize>,
    over: bool,
}

impl Replies {
    pub(crate) fn new(graph: &Graph) -> Self {
        let mut streamed = HashMap::new();
        let mut answers = Vec::new();
        for &node in &graph.replies {
            let Some(reply) = graph.nodes[node].node.streams() else { continue };
            for part in &reply.parts {
                if let Part::Variable(selector) = part {
                    streamed.insert((selector.node.clone(), selector.variable().to_owned()), String::new());
                }
            }
            answers.push(Answer {
                node,
                step: graph.nodes[node].id.step().clone(),
                parts: reply.parts.clone(),
                place: 0,
                told: 0,
                branches: branches_before(graph, node),
                over: false,
            });
        }
        Self(Mutex::new(State { answers, streamed, ended: vec![false; graph.nodes.len()], held: HashMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node made a piece of text.
    pub(crate) async fn text(&self, host: &Host<'_>, node: &str, variable: &str, text: &str) {
        let told = {
            let mut state = self.lock();
            match state.streamed.get_mut(&(node.to_owned(), variable.to_owned())) {
                Some(streamed) => streamed.push_str(text),
                None => return,
            }
            state.tell(None)
        };
        for event in self.shown(host, told) {
            host.tell(|| event).await;
        }
    }

    /// A node ended, and others will not run because of it.
    pub(crate) async fn ended(&self, host: &Host<'_>, node: usize, passed: &[usize], pool: &VariablePool) {
        let told = {
            let mut state = self.lock();
            state.ended[node] = true;
            for answer in &mut state.answers {
                answer.over |= passed.contains(&answer.node);
            }
            state.tell(Some(pool))
        };
        for event in self.shown(host, told) {
            host.tell(|| event).await;
        }
    }

    /// What is told of them: no secrets.
    fn shown(&self, host: &Host<'_>, told: Vec<Told>) -> Vec<Event> {
        let mut events = Vec::new();
        for Told { step, text, over } in told {
            let text = match host.services.get::<Outside>() {
                Some(outside) => {
                    let held = &mut self.lock().held;
                    let held = held.entry(step.clone()).or_default();
                    let shown = outside.secrets().redact_piece(held, &text);
                    if over { shown + &std::mem::take(held) } else { shown }
                }
                None => text,
            };
            if !text.is_empty() {
                events.push(Event::Answer { run: host.run(), step, text });
            }
        }
        events
    }
}

impl State {
    /// What can be told now. `pool` has what the nodes gave that have ended.
    fn tell(&mut self, pool: Option<&VariablePool>) -> Vec<Told> {
        let mut told = Vec::new();
        for answer in &mut self.answers {
            if answer.over {
                continue;
            }
            if answer.branches.iter().any(|&branch| !self.ended[branch]) {
                break;
            }
            let text = answer.advance(&self.streamed, pool);
            let over = self.ended[answer.node];
            if over || !text.is_empty() {
                told.push(Told { step: answer.step.clone(), text, over });
            }
            answer.over = over;
            if !over {
                break;
            }
        }
        told
    }
}

impl Answer {
    fn advance(&mut self, streamed: &HashMap<(String, String), String>, pool: Option<&VariablePool>) -> String {
        let mut out = String::new();
        while let Some(part) = self.parts.get(self.place) {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Variable(selector) => {
                    let whole = pool.and_then(|pool| {
                        // A node that has ended has all its variables; of one that hasn't, nothing is known.
                        pool.scope(&selector.node).map(|_| pool.find(selector).map(to_text).unwrap_or_default())
                    });
                    let so_far = whole.as_deref().or_else(|| {
                        let key = (selector.node.clone(), selector.variable().to_owned());
                        (selector.path.len() == 1).then(|| streamed.get(&key).map(String::as_str)).flatten()
                    });
                    if let Some(more) = so_far.and_then(|text| text.get(self.told..)) {
                        out.push_str(more);
                        self.told += more.len();
                    }
                    if whole.is_none() {
                        break;
                    }
                }
            }
            self.place += 1;
            self.told = 0;
        }
        out
    }
}

/// The nodes before a node that may lead past it.
fn branches_before(graph: &Graph, node: usize) -> Vec<usize> {
    let mut before = vec![Vec::new(); graph.nodes.len()];
    for (source, found) in graph.nodes.iter().enumerate() {
        found.edges.iter().for_each(|edge| before[edge.target].push(source));
    }
    let (mut seen, mut stack) = (vec![false; graph.nodes.len()], vec![node]);
    while let Some(next) = stack.pop() {
        for &source in &before[next] {
            if !std::mem::replace(&mut seen[source], true) {
                stack.push(source);
            }
        }
    }
    let branches = |place: &usize| {
        let found = &graph.nodes[*place];
        seen[*place] && (found.node.exits() != Exits::One || found.settings.on_error == OnError::Branch)
    };
    (0..graph.nodes.len()).filter(branches).collect()
}
