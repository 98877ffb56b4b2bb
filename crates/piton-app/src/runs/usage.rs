//! What a run used, as its newest checkpoint has it.

use piton_log::RunLog;
use piton_runtime::Ledger;
use piton_store::{Span, StoreError};
use piton_types::{PartName, Parts, TokenUsage, from_value};

/// How far back a list looks for a checkpoint: a list must not read whole logs.
const RECENT: usize = 32;

/// What the parts of a checkpoint say; `None` if they say nothing, or something that isn't known here.
pub async fn of_parts(log: &RunLog, parts: &Parts) -> Result<Option<TokenUsage>, StoreError> {
    match parts.get(&PartName::from(PartName::USAGE)) {
        Some(part) => Ok(from_value::<Ledger>(log.load(part).await?).ok().map(|ledger| ledger.used)),
        None => Ok(None),
    }
}

/// What the newest checkpoint says, if it is one of the newest entries.
pub async fn recent(log: &RunLog) -> Result<Option<TokenUsage>, StoreError> {
    let newest = log.entries(Span::newest(RECENT)).await?;
    match newest.iter().find(|entry| !entry.parts.is_empty()) {
        Some(entry) => of_parts(log, &entry.parts).await,
        None => Ok(None),
    }
}
