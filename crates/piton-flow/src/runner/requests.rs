//! Orders to a durable run: from its log, where other processes put them, from a signal, and from its handle.

use std::time::Duration;

use piton_runtime::{Order as Asked, RequestRecord, Run};
use tokio::sync::watch;

use super::attend::{Order, Orders};
use super::commands::{Command, Commands};
use super::signal::{Given, SafeStopSignal};
use super::updates;
use crate::control::Control;
use crate::engine::Host;

/// Where the orders to a run come from.
pub(crate) struct RunOrders<'a> {
    run: &'a Run,
    log: watch::Receiver<Option<RequestRecord>>,
    /// The request that was passed on last.
    known: Option<RequestRecord>,
    signal: &'a SafeStopSignal,
    given: Option<Given>,
    host: &'a Host<'a>,
    control: &'a Control,
    commands: &'a mut Commands,
    told: Told,
}

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) reason: Option<String>,
    pub(crate) aborted: bool,
}

impl<'a> RunOrders<'a> {
    pub(crate) fn new(
        run: &'a Run,
        signal: &'a SafeStopSignal,
        host: &'a Host<'a>,
        control: &'a Control,
        commands: &'a mut Commands,
    ) -> Self {
        let (log, told) = (run.orders(), Told::default());
        Self { run, log, known: None, signal, given: None, host, control, commands, told }
    }

    /// What was told, once the work is dropped.
    pub(crate) fn told(self) -> Told {
        self.told
    }

    /// An order of another process, or of our own signal: both are the run's.
    fn requested(&mut self, request: RequestRecord) -> Order {
        self.told.reason = Some(request.reason.clone());
        let order = match request.order {
            Asked::Stop { grace_ms } => Order::Stop(grace_ms.map(Duration::from_millis)),
            Asked::Cancel => Order::Cut,
        };
        self.known = Some(request);
        order
    }

    fn commanded(&mut self, command: Command) -> Option<Order> {
        match command {
            Command::Pause { reason } => {
                self.told.reason = Some(reason);
                Some(Order::Pause)
            }
            Command::Abort { reason } => {
                (self.told.reason, self.told.aborted) = (Some(reason), true);
                Some(Order::Cut)
            }
            Command::Stop { grace } => {
                self.run.stopper().stop("stopped by its handle", grace);
                None
            }
            Command::Update { values, done } => {
                updates::make(values, self.host, self.control, done);
                None
            }
            // It runs.
            Command::Resume => {
                self.control.open();
                None
            }
        }
    }
}

impl Orders for RunOrders<'_> {
    async fn next(&mut self) -> Order {
        loop {
            let (log, known) = (&mut self.log, &self.known);
            let requested = async {
                let asked = log.wait_for(|asked| asked.is_some() && asked != known).await;
                match asked.ok().and_then(|asked| asked.clone()) {
                    Some(request) => request,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                request = requested => return self.requested(request),
                given = self.signal.given(self.given) => {
                    self.given = Some(given);
                    match given {
                        Given::Stop(grace) => self.run.stopper().stop("stopped by a signal", Some(grace)),
                        Given::Abort => {
                            (self.told.reason, self.told.aborted) = (Some("aborted by a signal".to_owned()), true);
                            return Order::Cut;
                        }
                    }
                }
                command = self.commands.next() => {
                    if let Some(order) = self.commanded(command) {
                        return order;
                    }
                }
            }
        }
    }
}
