//! A session decides where the run stands still, and does what its console says while it does. The console is the end
//! for a shell: it waits for stops and says commands. One command is answered at a time, and only while the run stands;
//! breakpoints are taken at any time. When the console is gone, the run is left where it stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use piton_flow::{Debugger, Document, Moment, NodeId, Phase, RunOutcome, Selector, Then, VariablePool};
use piton_runtime::StartAt;
use piton_types::Value;
use tokio::sync::{mpsc, oneshot};

use super::command::{Breakpoint, Command, names};
use super::past::Past;
use crate::documents::outside::Secrecy;
use crate::failure::Failure;
use crate::views::debug::{ReplyView, StopReason, StopView};
use crate::views::value_json;

/// What a session begins with.
#[derive(Debug, Clone, Default)]
pub struct Breaks {
    /// Where it stops.
    pub breakpoints: Vec<Breakpoint>,
    /// After nodes that fail.
    pub on_error: bool,
    /// Before the first node that is run.
    pub at_start: bool,
}

/// The end of a session for a shell.
#[derive(Debug)]
pub struct Console {
    asks: mpsc::Sender<Asked>,
    stops: mpsc::UnboundedReceiver<StopView>,
    session: Weak<Session>,
}

#[derive(Debug)]
struct Asked {
    command: Command,
    answer: oneshot::Sender<Result<ReplyView, Failure>>,
}

impl Console {
    /// The next stop. `None` when the session is over.
    pub async fn next_stop(&mut self) -> Option<StopView> {
        self.stops.recv().await
    }

    /// Says a command to the run that stands, and waits for what comes of it. What only changes breakpoints is done at
    /// once, wherever the run is.
    ///
    /// # Errors
    ///
    /// Why it can't be done. The run stands as before then.
    pub async fn say(&self, command: Command) -> Result<ReplyView, Failure> {
        let over = || Failure::fixable("the session is over");
        if matches!(command, Command::Break(_) | Command::OnError { .. } | Command::Clear { .. }) {
            return self.session.upgrade().ok_or_else(over)?.obey(command).await;
        }
        let (answer, answered) = oneshot::channel();
        self.asks.send(Asked { command, answer }).await.map_err(|_| over())?;
        answered.await.map_err(|_| over())?
    }
}

/// How far the run goes before it stops again.
#[derive(Debug, Clone, PartialEq)]
enum Mode {
    /// To the next moment, for this reason.
    First(StopReason),
    Step,
    Next,
    Run,
    To(String),
}

/// What becomes of a run that was left.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Leaving {
    Quit,
    Back(StartAt),
}

#[derive(Debug)]
struct State {
    breaks: Breaks,
    mode: Mode,
    leaving: Option<Leaving>,
    /// Where the run stood last.
    stop: Option<StopView>,
}

/// Debugs one run.
#[derive(Debug)]
pub struct Session {
    document: Document,
    secrecy: Option<Arc<Secrecy>>,
    past: Mutex<Option<Past>>,
    state: Mutex<State>,
    /// Held by the stop whose turn it is.
    asked: tokio::sync::Mutex<mpsc::Receiver<Asked>>,
    stops: mpsc::UnboundedSender<StopView>,
}

impl Session {
    /// A session for a document, and its console.
    ///
    /// # Errors
    ///
    /// If a breakpoint names no node.
    pub fn new(
        document: Document,
        breaks: Breaks,
        secrecy: Option<Arc<Secrecy>>,
    ) -> Result<(Arc<Self>, Console), Failure> {
        let (asks, asked) = mpsc::channel(1);
        let (stops, stopped) = mpsc::unbounded_channel();
        let mode = if breaks.at_start { Mode::First(StopReason::Initial) } else { Mode::Run };
        let state = State { breaks, mode, leaving: None, stop: None };
        let session =
            Self { document, secrecy, past: Mutex::default(), state: state.into(), asked: asked.into(), stops };
        for breakpoint in &session.state().breaks.breakpoints {
            session.known(&breakpoint.node)?;
        }
        let session = Arc::new(session);
        let console = Console { asks, stops: stopped, session: Arc::downgrade(&session) };
        Ok((session, console))
    }

    /// From now on it can go back in this past.
    pub(super) fn set_past(&self, past: Past) {
        *self.past.lock().unwrap_or_else(PoisonError::into_inner) = Some(past);
    }

    fn past(&self) -> Option<Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The run was put back: it stops before the first node that is run.
    pub(super) fn went_back(&self) {
        self.state().mode = Mode::First(StopReason::Back);
    }

    /// Why the run was left, if it was.
    pub(super) fn take_leaving(&self) -> Option<Leaving> {
        self.state().leaving.take()
    }

    /// The run stands at no node: what is to become of it. `None` if it is to go on.
    pub(super) async fn at_rest(&self, reason: StopReason, outcome: &RunOutcome) -> Option<Leaving> {
        let mut asked = self.asked.lock().await;
        let mut stop = StopView::at_rest(reason, outcome);
        stop.error = stop.error.map(|error| self.shown(&error));
        self.tell(stop);
        loop {
            let Some(Asked { command, answer }) = asked.recv().await else { return Some(Leaving::Quit) };
            let is_over = reason == StopReason::Completed;
            let goes_on = matches!(command, Command::Step | Command::Next | Command::Continue | Command::To { .. });
            let reply =
                match command {
                    _ if is_over && goes_on => Err(Failure::refused("the run is completed")
                        .hint("`back STEP` goes back in a new run, `quit` ends.")),
                    Command::Variables { .. } | Command::Set { .. } => {
                        Err(Failure::refused("the run stands at no node, so there are no variables to look at or set"))
                    }
                    command => self.obey(command).await,
                };
            let leaves = reply.as_ref().is_ok_and(ReplyView::leaves);
            let _ = answer.send(reply);
            if leaves {
                return self.take_leaving();
            }
        }
    }

    /// What needs no variables.
    async fn obey(&self, command: Command) -> Result<ReplyView, Failure> {
        let mode = match command {
            Command::Break(breakpoint) => {
                self.known(&breakpoint.node)?;
                let mut state = self.state();
                state
                    .breaks
                    .breakpoints
                    .retain(|other| (&other.node, other.phase) != (&breakpoint.node, breakpoint.phase));
                state.breaks.breakpoints.push(breakpoint);
                return Ok(breakpoints(&state));
            }
            Command::OnError { on } => {
                let mut state = self.state();
                state.breaks.on_error = on;
                return Ok(breakpoints(&state));
            }
            Command::Clear { node } => {
                let mut state = self.state();
                let before = state.breaks.breakpoints.len();
                state
                    .breaks
                    .breakpoints
                    .retain(|breakpoint| node.as_ref().is_some_and(|node| *node != breakpoint.node));
                if let Some(node) = node
                    && before == state.breaks.breakpoints.len()
                {
                    return Err(Failure::not_found(format!("there is no breakpoint at {node:?}")));
                }
                return Ok(breakpoints(&state));
            }
            Command::State => {
                let state = self.state();
                let stop = state.stop.clone().ok_or_else(|| Failure::fixable("the run hasn't stopped yet"))?;
                let (breakpoints, on_error) = (state.breaks.breakpoints.clone(), state.breaks.on_error);
                return Ok(ReplyView::State { stop: Box::new(stop), breakpoints, on_error });
            }
            Command::Back { to } => {
                let Some(past) = self.past() else {
                    return Err(Failure::refused("the run isn't kept, so there is nothing to go back to"));
                };
                let back = past.find(to.as_deref(), &self.document).await?;
                self.state().leaving = Some(Leaving::Back(back.at));
                return Ok(ReplyView::GoesBack { to: back.to, entails: back.entails });
            }
            Command::Quit => {
                self.state().leaving = Some(Leaving::Quit);
                return Ok(ReplyView::Quits);
            }
            Command::Step => Mode::Step,
            Command::Next => Mode::Next,
            Command::Continue => Mode::Run,
            Command::To { node } => {
                self.known(&node)?;
                Mode::To(node)
            }
            Command::Variables { .. } | Command::Set { .. } => {
                return Err(Failure::internal("variables are looked at where the run stands"));
            }
        };
        self.state().mode = mode;
        Ok(ReplyView::GoesOn)
    }

    /// That a breakpoint's node is there; a place in the run is one of the node that it ends with.
    fn known(&self, text: &str) -> Result<(), Failure> {
        let id = text.rsplit('/').next().unwrap_or(text);
        let ids = self.document.node_ids();
        if ids.iter().any(|known| known.as_str() == id) {
            return Ok(());
        }
        let failure = Failure::not_found(format!("there is no node {text:?}"));
        Err(match self.document.nearest_node(id) {
            Some(near) => failure.hint(format!("did you mean {:?}?", near.as_str())),
            None => {
                let names: Vec<&str> = ids.iter().take(20).map(|id| id.as_str()).collect();
                failure.hint(format!("the nodes are {}.", names.join(", ")))
            }
        })
    }

    fn variables(&self, pool: &VariablePool, name: Option<&str>) -> Result<ReplyView, Failure> {
        let all = pool.snapshot_for_checkpoint();
        let value = match name {
            None => Some(all),
            Some(name) => match name.split_once('.') {
                None => all.field(name).cloned(),
                Some(_) => pool.find(&selector(name)?).cloned(),
            },
        };
        let value = value.ok_or_else(|| {
            let missing = name.unwrap_or_default();
            let failure = Failure::not_found(format!("there is no variable {missing:?} yet"));
            let node = missing.split('.').next().unwrap_or_default();
            match self.document.nearest_node(node).map(NodeId::as_str).filter(|near| *near != node) {
                Some(near) => failure.hint(format!("did you mean {near:?}?")),
                None => failure.hint("`vars` shows all that there are."),
            }
        })?;
        let shown = self.secrecy.as_ref().map_or_else(|| value.clone(), |secrecy| secrecy.shown_value(&value));
        Ok(ReplyView::Variables { variables: value_json(&shown) })
    }

    async fn set(&self, moment: &mut Moment<'_>, variables: BTreeMap<String, Value>) -> Result<ReplyView, Failure> {
        let mut values = Vec::new();
        for (name, value) in &variables {
            let selector = selector(name)?;
            let is_scope = ["sys", "env", "conversation"].contains(&selector.node.as_str());
            if !is_scope && moment.variables.scope(&selector.node).is_none() {
                self.known(&selector.node)?;
            }
            values.push((selector, value.clone()));
        }
        moment.set(values).await.map_err(|reason| Failure::fixable("the variables were not set").cause(reason))?;
        Ok(ReplyView::Set { variables: variables.into_keys().collect() })
    }

    /// Why the run stops there, if it does.
    fn reason(&self, moment: &Moment<'_>) -> Option<StopReason> {
        let state = self.state();
        let is_before = moment.phase == Phase::Before;
        if let Mode::First(reason @ StopReason::Back) = state.mode {
            return is_before.then_some(reason);
        }
        if state.breaks.breakpoints.iter().any(|breakpoint| breakpoint.is_at(moment)) {
            return Some(StopReason::Breakpoint);
        }
        if state.breaks.on_error && moment.error.is_some() {
            return Some(StopReason::Error);
        }
        match &state.mode {
            Mode::First(reason) => is_before.then_some(*reason),
            Mode::Step => Some(StopReason::Step),
            Mode::Next => is_before.then_some(StopReason::Step),
            Mode::To(node) => (is_before && names(node, moment)).then_some(StopReason::Reached),
            Mode::Run => None,
        }
    }

    fn view(&self, moment: &Moment<'_>, reason: StopReason) -> StopView {
        let gave = (moment.phase == Phase::After).then(|| moment.variables.scope(moment.node.as_str())).flatten();
        let shown = |value: Value| self.secrecy.as_ref().map_or_else(|| value.clone(), |it| it.shown_value(&value));
        StopView {
            run: self.past().map(|past| past.run().clone()),
            reason,
            phase: Some(moment.phase),
            node: Some(moment.node.to_string()),
            step: Some(moment.step.clone()),
            kind: Some(moment.kind.to_owned()),
            title: (moment.title != moment.node.as_str()).then(|| moment.title.to_owned()),
            gave: gave.filter(|_| moment.error.is_none()).map(|gave| value_json(&shown(Value::Map(gave.clone())))),
            error: moment.error.map(|error| self.shown(error)),
            outputs: None,
            questions: Vec::new(),
        }
    }

    fn shown(&self, text: &str) -> String {
        self.secrecy.as_ref().map_or_else(|| text.to_owned(), |secrecy| secrecy.shown(text))
    }

    /// Tells the shell. If it is gone, the next command is missing, and the run is left.
    fn tell(&self, stop: StopView) {
        self.state().stop = Some(stop.clone());
        let _ = self.stops.send(stop);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn breakpoints(state: &State) -> ReplyView {
    ReplyView::Breakpoints { breakpoints: state.breaks.breakpoints.clone(), on_error: state.breaks.on_error }
}

fn selector(name: &str) -> Result<Selector, Failure> {
    let words: Vec<String> = name.split('.').map(str::to_owned).collect();
    let wrong = || Failure::usage(format!("{name:?} names no variable")).hint("write it as `NODE.VARIABLE`.");
    if words.iter().any(String::is_empty) {
        return Err(wrong());
    }
    Selector::new(words).map_err(|_| wrong())
}

#[async_trait]
impl Debugger for Session {
    fn stops(&self, moment: &Moment<'_>) -> bool {
        self.reason(moment).is_some()
    }

    async fn stopped(&self, mut moment: Moment<'_>) -> Then {
        // Nodes of rounds that run side by side stop one after the other.
        let mut asked = self.asked.lock().await;
        if self.state().leaving.is_some() {
            return Then::Leave;
        }
        // What was said at the stop before may mean that this is none any more.
        let Some(reason) = self.reason(&moment) else { return Then::GoOn };
        self.tell(self.view(&moment, reason));
        loop {
            let Some(Asked { command, answer }) = asked.recv().await else {
                self.state().leaving = Some(Leaving::Quit);
                return Then::Leave;
            };
            let reply = match command {
                Command::Variables { name } => self.variables(&moment.variables, name.as_deref()),
                Command::Set { variables } => self.set(&mut moment, variables).await,
                command => self.obey(command).await,
            };
            let then = reply.as_ref().ok().filter(|reply| reply.leaves()).map(|reply| match reply {
                ReplyView::GoesOn => Then::GoOn,
                _ => Then::Leave,
            });
            let _ = answer.send(reply);
            if let Some(then) = then {
                return then;
            }
        }
    }
}
