//! Checkpoints that were given up. The entry of one stays where it is, as every entry does; another entry says that
//! its state need not be kept. What only it had is dropped later, by [`upkeep`](crate::upkeep).
//!
//! A writer that appends to the log after that has seen this entry: the commit rule sees to it, because the writer's
//! next commit conflicts. From then on the writer takes nothing for stored that it stored before.

use std::collections::BTreeSet;

use async_recursion::async_recursion as boxed;
use piton_types::{EntryKind, PackId, Seq, Value};

use super::{Draft, RunLog};
use crate::SealedEntry;
use piton_store::{Pin, Span, StoreError};

/// Which checkpoints an entry of kind `Removed` is about.
const CHECKPOINTS: &str = "checkpoints";
/// Which packs aren't needed any more.
const PACKS: &str = "packs";
/// Why.
const REASON: &str = "reason";

/// What was removed from a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// The checkpoints.
    pub checkpoints: BTreeSet<Seq>,
    /// Staged packs that entries name and the run doesn't need any more.
    pub packs: BTreeSet<PackId>,
    /// The newest entry that says so.
    pub last: Option<Seq>,
}

impl RunLog {
    /// Which checkpoints were removed, of all that the log has.
    pub async fn removed(&self) -> Result<Removed, StoreError> {
        self.removed_in(&self.entries(Span::ALL).await?).await
    }

    /// Which checkpoints these entries remove.
    #[boxed]
    pub async fn removed_in(&self, entries: &[SealedEntry]) -> Result<Removed, StoreError> {
        let mut removed = Removed::default();
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Removed) {
            let body = self.body(entry).await?;
            let listed = body.field(CHECKPOINTS).and_then(Value::as_list).unwrap_or_default();
            removed.checkpoints.extend(listed.iter().filter_map(|seq| Some(Seq(u32::try_from(seq.as_i64()?).ok()?))));
            let packs = body.field(PACKS).and_then(Value::as_list).unwrap_or_default();
            removed.packs.extend(packs.iter().filter_map(|pack| pack.as_str()?.parse::<PackId>().ok()));
            removed.last = Some(entry.seq);
        }
        Ok(removed)
    }

    /// Gives checkpoints up. That is nothing which the run did: it is as old afterwards as it was before.
    #[boxed]
    pub async fn remove_checkpoints(&mut self, checkpoints: &BTreeSet<Seq>, reason: &str) -> Result<Seq, StoreError> {
        let listed = checkpoints.iter().map(|seq| Value::from(i64::from(seq.0))).collect::<Vec<_>>();
        let mut draft = Draft::new(EntryKind::Removed, self.at);
        draft.label = format!("{} checkpoints removed", checkpoints.len());
        draft.body = Value::map([(CHECKPOINTS, listed.into()), (REASON, Value::from(reason))]);
        let seq = self.append(draft).await?;
        self.distrust();
        Ok(seq)
    }

    /// Says that the run doesn't need packs any more that its entries name, and that it needs others in their place.
    #[boxed]
    pub(crate) async fn replace_packs(
        &mut self,
        packs: &[PackId],
        by: Vec<PackId>,
        pin: Pin,
    ) -> Result<(), StoreError> {
        let listed = packs.iter().map(|pack| Value::from(pack.to_string())).collect::<Vec<_>>();
        let mut draft = Draft::new(EntryKind::Removed, self.at);
        draft.label = format!("{} packs dropped", packs.len());
        draft.body = Value::map([(PACKS, listed.into())]);
        draft.staged = by;
        draft.pin = Some(pin);
        self.append(draft).await?;
        self.distrust();
        Ok(())
    }

    /// After an entry of this kind was appended: takes nothing for stored any more if it removed something.
    pub(crate) fn forget_if_removed(&mut self, kind: EntryKind) {
        if kind == EntryKind::Removed {
            self.distrust();
        }
    }

    /// Takes nothing for stored any more that this handle stored.
    pub(super) fn distrust(&mut self) {
        self.removals += 1;
        self.known.clear();
    }
}
