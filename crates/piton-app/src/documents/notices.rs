//! `[notify]` of the configuration: which program or address is told when a run asks a person, fails or completes.

use std::sync::Arc;
use std::time::Duration;

use piton_runtime::notify::{CommandHook, Notifier, Notify, NotifyOn, Webhook};
use piton_runtime::{Listener, SystemClock};
use serde::Deserialize;

use crate::app::App;
use crate::failure::Failure;

/// How long the program waits for those who are told, after the run is over.
const PATIENCE: Duration = Duration::from_secs(15);

/// Who is told, and of what.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Notices {
    /// A program and its arguments; the notice is JSON on its standard input.
    command: Vec<String>,
    /// An `http` address that the notice is posted to.
    webhook: Option<String>,
    /// Of what: `failed`, `waiting`, `completed`.
    on: NotifyOn,
}

impl Notices {
    /// That it makes sense, before anything runs.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.webhook {
            Some(url) => Webhook::new(url).map(drop).map_err(|error| Failure::fixable(error.to_string())),
            None => Ok(()),
        }
    }

    /// Begins to tell, if the configuration names a program or an address.
    pub fn start(&self) -> Option<Telling> {
        let mut hooks: Vec<Arc<dyn Notify>> = Vec::new();
        if let [program, arguments @ ..] = &self.command[..] {
            hooks.push(Arc::new(CommandHook::new(program, arguments.to_vec())));
        }
        hooks.extend(self.webhook.as_deref().and_then(|url| Webhook::new(url).ok()).map(|hook| Arc::new(hook) as _));
        if hooks.is_empty() {
            return None;
        }
        Some(Telling(Notifier::new(hooks, self.on, Arc::new(SystemClock::new()))))
    }
}

/// Programs and addresses that are being told.
pub struct Telling(Notifier);

impl Telling {
    /// A listener that tells `next` too.
    pub fn listener(&self, next: Listener) -> Listener {
        self.0.listener(next)
    }

    /// Waits until all were told, but not for ever.
    pub async fn finish(self, app: &App) {
        match tokio::time::timeout(PATIENCE, self.0.finish()).await {
            Ok(told) if told.failed + told.dropped == 0 => {}
            _ => app.warn("not every program or address that [notify] names could be told"),
        }
    }
}
