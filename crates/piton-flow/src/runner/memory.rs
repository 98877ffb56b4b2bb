//! A workflow without a store: nothing is kept, so whatever is cut short is lost. The same orders as with one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use piton_types::{Clock, Event, Random, RunId, StepPath, Value};
use tokio::sync::{oneshot, watch};

use super::attend::{Order, Orders, Rest, attend};
use super::commands::{Command, Commands};
use super::signal::{Given as Signalled, SafeStopSignal};
use super::status::{ExecutionStatus, OpenQuestion, StopReport};
use crate::activity::Activity;
use crate::control::Control;
use crate::engine::{self, Finished, Host, Ids, Limits};
use crate::error::FlowError;
use crate::events::EventSink;
use crate::flow::{Flow, Given};
use crate::inbox::{Answered, Inbox, Question, Waiting};
use crate::journal::{JournalError, NoJournal};
use crate::need::Services;

/// The questions of a run, answered by its handle.
#[derive(Debug, Default)]
pub(crate) struct MemoryInbox {
    open: Mutex<BTreeMap<StepPath, (OpenQuestion, oneshot::Sender<Value>)>>,
    told: Mutex<Option<watch::Sender<Vec<OpenQuestion>>>>,
}

impl MemoryInbox {
    /// Answers a question; says whether it was open.
    pub(crate) fn answer(&self, step: &StepPath, value: Value) -> bool {
        let found = self.change(|open| open.remove(step));
        found.is_some_and(|(_, answer)| answer.send(value).is_ok())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Open) -> T) -> T {
        let mut open = lock(&self.open);
        let changed = change(&mut open);
        if let Some(told) = &*lock(&self.told) {
            told.send_replace(open.values().map(|(question, _)| question.clone()).collect());
        }
        changed
    }
}

type Open = BTreeMap<StepPath, (OpenQuestion, oneshot::Sender<Value>)>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A question that isn't open any more when this is dropped.
struct Asked<'a>(&'a MemoryInbox, &'a StepPath);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.change(|open| drop(open.remove(self.1)));
    }
}

#[async_trait]
impl Inbox for MemoryInbox {
    async fn ask(&self, question: Question, waiting: &Waiting<'_>) -> Result<Answered, JournalError> {
        let Question { step, prompt, form, timeout } = question;
        let open =
            OpenQuestion { step: step.clone(), token: String::new(), prompt, form: Some(form), timeout_at: None };
        let (sender, answer) = oneshot::channel();
        self.change(|all| drop(all.insert(step.clone(), (open, sender))));
        let _asked = Asked(self, &step);
        let late = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        Ok(waiting
            .until(async {
                tokio::select! {
                    answer = answer => answer.map_or(Answered::Withdrawn, Answered::Given),
                    () = late => Answered::Late,
                }
            })
            .await)
    }
}

/// A workflow that is about to run.
pub(crate) struct Unkept {
    pub(crate) run: RunId,
    pub(crate) flow: Flow,
    pub(crate) given: Given,
    pub(crate) services: Services,
    pub(crate) limits: Limits,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) stop: SafeStopSignal,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) inbox: Arc<MemoryInbox>,
    pub(crate) tell: Arc<dyn Fn(&Event) + Send + Sync>,
}

/// Ids from a source of chance.
pub(crate) struct RandomIds<'a>(pub(crate) &'a dyn Random);

impl Ids for RandomIds<'_> {
    fn next(&self) -> String {
        let mut bytes = [0; 16];
        self.0.fill(&mut bytes);
        engine::uuid(bytes)
    }
}

impl Unkept {
    /// Runs it to its end. `status` is told when nothing runs because it was paused, and when it goes on.
    pub(crate) async fn drive(
        self,
        commands: &mut Commands,
        status: &watch::Sender<ExecutionStatus>,
    ) -> ExecutionStatus {
        let (journal, ids) = (NoJournal::new(self.run.clone()), RandomIds(&*self.random));
        *lock(&self.inbox.told) = commands.questions.clone();
        let control = Control::default();
        let host = Host {
            events: EventSink::Call(&*self.tell),
            folder: self.folder.as_deref(),
            services: &self.services,
            limits: self.limits.clone(),
            inbox: Some(&*self.inbox),
            control: Some(&control),
            ..Host::new(&journal, &*self.clock, &ids)
        };
        (self.tell)(&Event::RunStarted { run: self.run.clone(), resumed: false });
        let activity = Activity::default();
        let mut orders = HandleOrders { signal: &self.stop, given: None, control: &control, commands, reason: None };
        let mut work = pin!(engine::drive(&self.flow, self.given, &host, &activity));
        loop {
            // No other process could go on with it, so it stays while it waits for an answer.
            match attend(work.as_mut(), &activity, &control, &mut orders, || false).await {
                Rest::Ended(ended) => return ended_as(&self.run, ended, &*self.tell),
                Rest::Cut => {
                    let reason = orders.reason.unwrap_or_else(|| "aborted".to_owned());
                    (self.tell)(&Event::RunFailed { run: self.run.clone(), error: reason.clone() });
                    return ExecutionStatus::Failed(reason);
                }
                Rest::Stopped => {
                    let report = StopReport {
                        last_completed: control.last_completed(),
                        interrupted: control.running(),
                        failed: control.failures().into_iter().collect(),
                        checkpoint_saved: false,
                    };
                    (self.tell)(&report.event(&self.run));
                    return report.into();
                }
                Rest::Paused | Rest::Waits => {
                    let prompt = orders.reason.clone().unwrap_or_default();
                    (self.tell)(&Event::RunPaused { run: self.run.clone(), step: None, prompt: prompt.clone() });
                    status.send_replace(ExecutionStatus::Paused { node_id: None, node_title: String::new(), prompt });
                    match orders.resumed().await {
                        None => {
                            control.open();
                            (self.tell)(&Event::RunResumed { run: self.run.clone(), step: None });
                            status.send_replace(ExecutionStatus::Running);
                        }
                        Some(Order::Cut) => {
                            let reason = orders.reason.unwrap_or_else(|| "aborted".to_owned());
                            return ExecutionStatus::Failed(reason);
                        }
                        Some(_) => {
                            let last_completed = control.last_completed();
                            let report = StopReport { last_completed, ..StopReport::default() };
                            (self.tell)(&report.event(&self.run));
                            return report.into();
                        }
                    }
                }
            }
        }
    }
}

/// What the end of the work means.
fn ended_as(run: &RunId, ended: Result<Finished, FlowError>, tell: &dyn Fn(&Event)) -> ExecutionStatus {
    match ended {
        Ok(finished) => {
            tell(&finished.event(run.clone()));
            match finished.recovered_from {
                Some(original_error) => {
                    ExecutionStatus::FailedWithRecovery { original_error, recovered_outputs: finished.outputs }
                }
                None => ExecutionStatus::Completed(finished.outputs),
            }
        }
        Err(error) => {
            let error = error.to_string();
            tell(&Event::RunFailed { run: run.clone(), error: error.clone() });
            ExecutionStatus::Failed(error)
        }
    }
}

/// Orders from a signal and a handle.
struct HandleOrders<'a> {
    signal: &'a SafeStopSignal,
    given: Option<Signalled>,
    control: &'a Control,
    commands: &'a mut Commands,
    reason: Option<String>,
}

impl HandleOrders<'_> {
    /// Waits until a paused run may go on; or for what else becomes of it.
    async fn resumed(&mut self) -> Option<Order> {
        loop {
            tokio::select! {
                given = self.signal.given(self.given) => return Some(self.signalled(given)),
                command = self.commands.next() => {
                    if matches!(command, Command::Resume) {
                        return None;
                    }
                    if let Some(order @ (Order::Stop(_) | Order::Cut)) = self.commanded(command) {
                        return Some(order);
                    }
                }
            }
        }
    }

    fn signalled(&mut self, given: Signalled) -> Order {
        self.given = Some(given);
        match given {
            Signalled::Stop(grace) => Order::Stop(Some(grace)),
            Signalled::Abort => {
                self.reason = Some("aborted by a signal".to_owned());
                Order::Cut
            }
        }
    }

    fn commanded(&mut self, command: Command) -> Option<Order> {
        match command {
            Command::Pause { reason } => {
                self.reason = Some(reason);
                Some(Order::Pause)
            }
            Command::Stop { grace } => Some(Order::Stop(grace)),
            Command::Abort { reason } => {
                self.reason = Some(reason);
                Some(Order::Cut)
            }
            Command::Update { values, done } => {
                self.control.update(values);
                let _ = done.send(Ok(()));
                None
            }
            Command::Resume => {
                self.control.open();
                None
            }
        }
    }
}

impl Orders for HandleOrders<'_> {
    async fn next(&mut self) -> Order {
        loop {
            tokio::select! {
                biased;
                given = self.signal.given(self.given) => return self.signalled(given),
                command = self.commands.next() => {
                    if let Some(order) = self.commanded(command) {
                        return order;
                    }
                }
            }
        }
    }
}
