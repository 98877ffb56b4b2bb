//! The rules that a store was given. Every process that does its upkeep goes by these.

use std::time::Duration;

use piton_store::{Bytes, Store, StoreError};
use piton_types::Retention;

const RULES: &str = "retention/rules";

/// How long things are kept in this store: as it was told, or by default.
pub async fn rules(store: &dyn Store) -> Result<Retention, StoreError> {
    let Some(note) = store.note(RULES).await? else { return Ok(Retention::default()) };
    // Not by default what was to be kept for longer.
    parse(&note).ok_or_else(|| StoreError::corrupt("the rules for what is kept", "they can't be read"))
}

/// Gives a store its rules.
pub async fn set_rules(store: &dyn Store, rules: &Retention) -> Result<(), StoreError> {
    let Retention { completed, failed, per_run, per_workspace } = rules;
    let note = format!("{} {} {per_run} {per_workspace}", completed.as_secs(), failed.as_secs());
    store.set_note(RULES, (*rules != Retention::default()).then(|| Bytes::from(note))).await
}

fn parse(note: &[u8]) -> Option<Retention> {
    let mut fields = std::str::from_utf8(note).ok()?.split(' ');
    let seconds = |field: Option<&str>| Some(Duration::from_secs(field?.parse().ok()?));
    let rules = Retention {
        completed: seconds(fields.next())?,
        failed: seconds(fields.next())?,
        per_run: fields.next()?.parse().ok()?,
        per_workspace: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(rules)
}
