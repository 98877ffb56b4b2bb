//! What a run used, as its log has it: in the tally that an engine keeps with every step, or in the part `usage` that an
//! agent's context keeps.

use piton_log::RunLog;
use piton_store::StoreError;
use piton_types::{EntryKind, PartName, Parts, TokenUsage, Value, from_value};
use serde::Deserialize;

use crate::fact::Fact;
use crate::{History, Ledger, Pager, PastEntry};

/// How far back a list looks: it must not read whole logs.
const RECENT: usize = 32;

/// The fields of a tally that every engine names alike.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    prompt_tokens: u64,
    completion_tokens: u64,
    cost: f64,
}

/// What a tally says.
pub(crate) fn of_tally(tally: &Value) -> TokenUsage {
    let Counted { prompt_tokens, completion_tokens, cost } = from_value(tally.clone()).unwrap_or_default();
    TokenUsage { input: prompt_tokens, output: completion_tokens, cost }
}

/// What the parts of a checkpoint say; `None` if they say nothing, or something that isn't known here.
pub(crate) async fn of_parts(log: &RunLog, parts: &Parts) -> Result<Option<TokenUsage>, StoreError> {
    match parts.get(&PartName::from(PartName::USAGE)) {
        Some(part) => Ok(from_value::<Ledger>(log.load(part).await?).ok().map(|ledger| ledger.used)),
        None => Ok(None),
    }
}

impl History {
    /// [`usage`](Self::usage), for lists: of the newest entries alone, unless the run was put back among them. `None` if
    /// they don't say.
    pub async fn recent_usage(log: &RunLog) -> Result<Option<TokenUsage>, StoreError> {
        let newest = Pager::new(log).entries(RECENT).await?;
        let counts = || newest.iter().filter(|past| !past.undone).map(|past| &past.entry);
        // What an engine keeps of its own has a name that no step has, and no tally.
        let step = counts().find(|entry| entry.kind == EntryKind::StepDone && !entry.label.starts_with('#'));
        if let Some(entry) = step
            && let Fact::Step(step) = Fact::read(log, entry).await?
            && !step.tally.is_null()
        {
            return Ok(Some(of_tally(&step.tally)));
        }
        if step.is_none() && newest.iter().any(|PastEntry { undone, .. }| *undone) {
            return Self::read(log).await?.usage(log).await;
        }
        match counts().find(|entry| !entry.parts.is_empty()) {
            Some(entry) => of_parts(log, &entry.parts).await,
            None => Ok(None),
        }
    }
}
